// Every rank sends each other one a hash of what it is about to do, and starts once all hashes are there and alike. So
// a rank that does something else is found before it does harm, and a rank that does not come is known by what is
// missing. When the transport fails, the health of the membership knows more than the broken connection does.
#include "collective/process/agreement.h"

#include <torch/types.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstring>

#include "base/deadline.h"
#include "base/error_text.h"
#include "base/fail.h"
#include "base/hash.h"
#include "base/log.h"
#include "collective/algorithms/exchange.h"
#include "collective/algorithms/levels.h"

namespace cohort {

// The agreement whose waits the membership's thread ends when the group fails. That thread must own nothing of it:
// newer Gloos keep what they met by, and with it the membership, which cannot be destroyed by its own thread.
struct Agreement::Ends {
  std::mutex mutex;
  Agreement* agreement;  // null: it is gone
};

struct Agreement::Begun {
  uint64_t number = 0;
  std::string what;
  Announcements own;  // one for all ranks, or one for each
  Announcements all;
  std::vector<std::unique_ptr<Message>> messages;  // after the memory that they use

  const Announcement& own_for(int rank) const { return own[own.size() == 1 ? 0 : static_cast<std::size_t>(rank)]; }
};

Agreement::Agreement(Transport& transport, AgreementOptions options, std::function<void()> end_waits)
    : transport_(transport),
      options_(std::move(options)),
      levels_(levels_named(options_.algorithm, transport.size())),
      end_waits_(std::move(end_waits)) {
  if (!options_.membership) return;
  ends_ = std::make_shared<Ends>();
  ends_->agreement = this;
  options_.membership->on_failure([ends = ends_](const std::string&) {
    const std::lock_guard lock(ends->mutex);
    if (ends->agreement != nullptr) ends->agreement->end_waits_();
  });
  watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

Agreement::~Agreement() {
  if (!ends_) return;
  const std::lock_guard lock(ends_->mutex);
  ends_->agreement = nullptr;
}

std::string Agreement::rank_name(int rank) const {
  if (!options_.membership) return c10::str("rank ", rank);
  const auto at = static_cast<std::size_t>(rank);
  const std::size_t task = options_.members.empty() ? at : static_cast<std::size_t>(options_.members[at]);
  return options_.membership->tasks()[task].to_string();
}

void Agreement::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_) aborted_ = reason;
  }
  end_waits_();
}

bool Agreement::broken() const {
  const std::lock_guard lock(mutex_);
  return broken_.has_value();
}

std::optional<std::string> Agreement::failure() const {
  if (options_.membership) {
    if (auto reason = options_.membership->failure()) return reason;
  }
  const std::lock_guard lock(mutex_);
  return aborted_ ? aborted_ : broken_;
}

std::string Agreement::reason_of(const std::string& error) const {
  if (!options_.membership) return error;
  return options_.membership->await_failure().value_or(error);
}

void Agreement::require_working() const {
  const std::lock_guard lock(mutex_);
  if (broken_) throw std::runtime_error(*broken_);
}

void Agreement::run(FlightRecorder& recorder, const std::string& what,
                    const std::function<std::string(uint64_t)>& missing, const std::function<void()>& operation) {
  const torch::NoGradGuard no_grad;
  const auto begin = FlightRecorder::Clock::now();
  const uint64_t number = recorder.begin(what);
  try {
    require_working();
    operation();
    recorder.end(number);
  } catch (const Error& error) {
    recorder.end(number, error_text(error));
    throw;
  } catch (const std::exception& error) {
    {
      const std::lock_guard lock(mutex_);
      if (!broken_) broken_ = error_text(error);
    }
    end_waits_();
    recorder.end(number, error_text(error));
    explain(what, begin, [&] { return missing(number); });
  }
}

void Agreement::carry_out(Begun& begun, const Operation& operation) {
  run(
      collectives_, begun.what, [this](uint64_t number) { return stragglers(number); },
      [&] {
        if (begun.number == 0) announce(begun);
        await(begun);
        operation(begun.all);
      });
}

void Agreement::perform(const std::string& what, const Numbers& mine, const Operation& operation) {
  Begun begun{.what = what, .own = {{.hash = hash_of(what), .numbers = mine}}};
  carry_out(begun, operation);
}

void Agreement::perform_with_each(const std::string& what, const std::vector<Numbers>& mine,
                                  const Operation& operation) {
  Begun begun{.what = what};
  for (const Numbers& numbers : mine) begun.own.push_back({.hash = hash_of(what), .numbers = numbers});
  carry_out(begun, operation);
}

std::shared_ptr<Agreement::Begun> Agreement::begin(const std::string& what, const Numbers& mine) {
  auto begun = std::make_shared<Begun>(Begun{.what = what, .own = {{.hash = hash_of(what), .numbers = mine}}});
  try {
    require_working();
    announce(*begun);
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    if (!broken_) broken_ = error_text(error);  // finish() says so
  }
  return begun;
}

std::vector<Agreement::Numbers> Agreement::finish(Begun& begun) {
  std::vector<Numbers> numbers;
  carry_out(begun, [&](const Announcements& all) {
    for (const Announcement& other : all) numbers.push_back(other.numbers);
  });
  return numbers;
}

void Agreement::announce(Begun& begun) {
  const int size = transport_.size();
  const int me = transport_.rank();
  begun.number = ++announced_;
  begun.all.resize(static_cast<std::size_t>(size));
  begun.all[static_cast<std::size_t>(me)] = begun.own_for(me);
  if (levels_.empty()) send_to_each(begun);
}

void Agreement::send_to_each(Begun& begun) {
  const int size = transport_.size();
  const int me = transport_.rank();
  for (int other = 0; other < size; ++other) {
    if (other == me) continue;
    Announcement& place = begun.all[static_cast<std::size_t>(other)];
    begun.messages.push_back(
        transport_.receive(other, std::as_writable_bytes(std::span(&place, 1)), Transport::kCollectives));
  }
  for (int other = 0; other < size; ++other) {
    if (other == me) continue;
    begun.messages.push_back(
        transport_.send(other, std::as_bytes(std::span(&begun.own_for(other), 1)), Transport::kCollectives));
  }
}

void Agreement::await(Begun& begun) {
  if (!levels_.empty()) gather_by_levels(begun);
  for (const auto& message : std::exchange(begun.messages, {})) message->wait();
  require_same(begun);
  if (levels_.empty() || begun.own.size() == 1) return;
  send_to_each(begun);
  for (const auto& message : std::exchange(begun.messages, {})) message->wait();
}

// All get what this rank has for itself, with the hash that they compare.
void Agreement::gather_by_levels(Begun& begun) {
  Announcement own = begun.own_for(transport_.rank());
  const auto bytes = static_cast<int64_t>(sizeof own);
  const std::vector<torch::Tensor> all =
      exchange_gather(Peers(transport_), torch::from_blob(&own, {1, bytes}, torch::kByte),
                      std::vector<int64_t>(begun.all.size(), 1), levels_);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::memcpy(&begun.all[rank], bytes_of(all[rank]).data(), sizeof own);
  }
}

// Every rank sees all hashes, so all come to the same verdict and tell each other what they meant to do.
void Agreement::require_same(const Begun& begun) {
  const auto differs = [&](const Announcement& other) { return other.hash != begun.all.front().hash; };
  const auto found = std::find_if(begun.all.begin(), begun.all.end(), differs);
  if (found == begun.all.end()) return;
  const auto other = static_cast<int>(found - begun.all.begin());
  const std::string key = c10::str(options_.name, "/mismatch/", begun.number);
  const bool involved = transport_.rank() == 0 || transport_.rank() == other;
  if (involved && options_.membership) options_.membership->put(c10::str(key, "/", transport_.rank()), begun.what);
  const std::string first = text_of(0, key, begun.what);
  fail<FailedPrecondition>("[collective] the workers do not do the same in collective ", begun.number, ": ",
                           rank_name(0), " calls ", first, ", ", rank_name(other), " calls ",
                           text_of(other, key, begun.what));
}

std::string Agreement::text_of(int rank, const std::string& key, const std::string& mine) const {
  if (rank == transport_.rank()) return mine;
  if (!options_.membership) return "something else";
  return options_.membership->get(c10::str(key, "/", rank), std::chrono::seconds(10));
}

void Agreement::exchange(const Exchange& exchange, const std::function<void()>& operation) {
  const auto missing = [&](uint64_t) { return rank_name(exchange.peer); };
  run(messages_, exchange.what, missing, [&] {
    const uint64_t mine = hash_of(exchange.message);
    uint64_t theirs = 0;
    uint64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      number = ++exchanged_[{exchange.peer, exchange.lane}];
    }
    const auto in = transport_.receive(exchange.peer, std::as_writable_bytes(std::span(&theirs, 1)), exchange.lane);
    const auto out = transport_.send(exchange.peer, std::as_bytes(std::span(&mine, 1)), exchange.lane);
    in->wait();
    out->wait();
    if (theirs != mine) mismatch(exchange, number);
    operation();
  });
}

// Both ends see the other's hash, so both come here and tell each other what they meant to do.
void Agreement::mismatch(const Exchange& exchange, uint64_t number) {
  const int me = transport_.rank();
  const int low = std::min(me, exchange.peer);
  const int high = std::max(me, exchange.peer);
  const std::string key = c10::str(options_.name, "/message/", low, "-", high, "/", exchange.lane, "/", number);
  if (options_.membership) options_.membership->put(c10::str(key, "/", me), exchange.what);
  const std::string first = text_of(low, key, exchange.what);
  const std::string second = text_of(high, key, exchange.what);
  fail<FailedPrecondition>("[collective] a message does not match: ", rank_name(low), " calls ", first, ", ",
                           rank_name(high), " calls ", second);
}

// Says what a transport's error means.
void Agreement::explain(const std::string& what, FlightRecorder::Clock::time_point begin,
                        const std::function<std::string()>& missing) {
  const std::string me = rank_name(transport_.rank());
  std::string error;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) fail<Cancelled>("[collective] ", me, " in ", what, ": cancelled, because ", *aborted_);
    error = *broken_;
  }
  const bool out_of_time = FlightRecorder::Clock::now() - begin >= options_.timeout;
  log().error("[collective] {} failed in {}; the last collectives were\n{}and the last messages\n{}", me, what,
              collectives_.dump(), messages_.dump());
  const std::string who = out_of_time ? missing() : "";
  if (options_.membership) {
    if (const auto reason = options_.membership->await_failure()) {
      fail<Unavailable>("[collective] ", me, " in ", what, ": ", *reason);
    }
  }
  if (out_of_time) {
    fail<DeadlineExceeded>("[collective] ", me, " waited ", to_text(options_.timeout), " in ", what,
                           who.empty() ? "" : " for ", who);
  }
  fail<Unavailable>("[collective] ", me, " in ", what, ": ", error);
}

// Tells the others where this rank is, and its user for whom it waits. A rank that has ended its program may have done
// its part of an operation before, and this one may not have got to what it sent: it is missed if the same operation
// still waits a while later.
void Agreement::watch(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  uint64_t told = 0;
  std::array<uint64_t, 2> missed{};  // the collective and the message that waited when a rank was known to have ended
  while (!wake.wait_for(lock, stop, options_.straggler_after, [] { return false; }) && !stop.stop_requested()) {
    try {
      const std::array<uint64_t, 2> late{report_late_collective(told), report_late_messages()};
      if (!has_lost_a_rank()) continue;
      for (std::size_t i = 0; i < late.size(); ++i) {
        if (std::exchange(missed[i], late[i]) == late[i] && late[i] != 0) return end_waits_();
      }
    } catch (const Error&) {
      return end_waits_();  // the group has failed: whoever waits hears of it
    }
  }
}

// Returns the number of the collective that waits for too long, or 0. `told`: the last one that the others were told.
uint64_t Agreement::report_late_collective(uint64_t& told) {
  const auto last = collectives_.last();
  if (!last) return 0;
  if (std::exchange(told, last->number) != last->number) {
    options_.membership->put(position_key(transport_.rank()), c10::str(last->number, " ", last->what));
  }
  if (last->end || FlightRecorder::Clock::now() - last->begin < options_.straggler_after) return 0;
  log().warn("[collective] {} waits in {} (collective {}) for {}", rank_name(transport_.rank()), last->what,
             last->number, stragglers(last->number));
  return last->number;
}

// Returns the number of the first message that waits for too long, or 0.
uint64_t Agreement::report_late_messages() const {
  uint64_t first = 0;
  for (const FlightRecorder::Entry& entry : messages_.entries()) {
    if (entry.end || FlightRecorder::Clock::now() - entry.begin < options_.straggler_after) continue;
    log().warn("[collective] {} waits in {}", rank_name(transport_.rank()), entry.what);
    if (first == 0) first = entry.number;
  }
  return first;
}

bool Agreement::has_lost_a_rank() const {
  for (const std::string& name : options_.membership->departed()) {
    for (int rank = 0; rank < transport_.size(); ++rank) {
      if (rank_name(rank) == name) return true;
    }
  }
  return false;
}

std::string Agreement::position_key(int rank) const {
  return c10::str(options_.name, "/at/", rank);
}

std::string Agreement::stragglers(uint64_t number) const {
  if (!options_.membership) return "";
  std::string text;
  for (int other = 0; other < transport_.size(); ++other) {
    if (other == transport_.rank()) continue;
    const std::string at = options_.membership->try_get(position_key(other)).value_or("0");
    uint64_t last = 0;  // also of what is no number
    std::from_chars(at.data(), at.data() + at.size(), last);
    if (last >= number) continue;
    text +=
        c10::str(text.empty() ? "" : ", ", rank_name(other), last == 0 ? "" : " (last seen in collective " + at + ")");
  }
  return text.empty() ? "a slow network: all have come" : text;
}

}  // namespace cohort
