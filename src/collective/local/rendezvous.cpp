// A seat counts how often its rank has come; an operation is over when every seat has counted as far. Signatures and
// data lie in the seats, and the counters, which all read and one writes, are the only synchronisation while nobody
// sleeps.
#include "collective/local/rendezvous.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <thread>

#include "base/fail.h"
#include "base/log.h"
#include "base/spin.h"
#include "base/tracer.h"

namespace cohort {

bool CallSignature::matches(const CallSignature& other) const {
  if (what != other.what || detail != other.detail || tensors.size() != other.tensors.size()) return false;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const torch::Tensor& mine = tensors[i];
    const torch::Tensor& theirs = other.tensors[i];
    if (mine.scalar_type() != theirs.scalar_type()) return false;
    if (mine.sizes() == theirs.sizes()) continue;
    if (!ragged || mine.dim() != theirs.dim() || mine.sizes().slice(1) != theirs.sizes().slice(1)) return false;
  }
  return true;
}

std::string CallSignature::describe() const {
  std::string text(what);
  if (detail != 0) text += c10::str(" (variant ", detail, ")");
  for (std::size_t i = 0; i < tensors.size() && i < 4; ++i) {
    text += c10::str(i == 0 ? " of " : ", ", c10::toString(tensors[i].scalar_type()), tensors[i].sizes());
  }
  if (tensors.size() > 4) text += c10::str(", ... (", tensors.size(), " tensors)");
  return text;
}

Rendezvous::Rendezvous(int size, std::chrono::milliseconds timeout, bool spin)
    : seats_(static_cast<std::size_t>(size)), timeout_(timeout), spin_(spin) {}

void Rendezvous::arrive(int rank, const CallSignature& signature, void* data) {
  refuse_in_trace(signature.what);
  Seat& mine = seats_[static_cast<std::size_t>(rank)];
  mine.signature = signature;
  mine.data = data;
  wait_for_all(rank, signature.what, /*abortable=*/true);

  // Every rank compares all with rank 0, so all come to the same verdict; what signatures point to lives on the ranks'
  // stacks, so nobody may leave before all have looked.
  const CallSignature& first = seats_[0].signature;
  for (int other = 1; other < size(); ++other) {
    const CallSignature& theirs = seats_[static_cast<std::size_t>(other)].signature;
    if (first.matches(theirs)) continue;
    const std::string message = c10::str("[collective] the replicas do not do the same: replica ", name(0), " calls ",
                                         first.describe(), ", replica ", name(other), " calls ", theirs.describe());
    depart(rank);
    throw FailedPrecondition(message);
  }
}

bool Rendezvous::all_arrived(uint64_t generation) const {
  for (const Seat& seat : seats_) {
    if (seat.arrived.load() < generation) return false;
  }
  return true;
}

void Rendezvous::wait_for_all(int rank, std::string_view what, bool abortable) {
  Seat& mine = seats_[static_cast<std::size_t>(rank)];
  const uint64_t generation = mine.arrived.load(std::memory_order_relaxed) + 1;
  if (abortable) mine.operation = generation;
  mine.arrived.store(generation);
  wake_sleepers();
  bool in_time = true;
  const auto done = [&] {
    return all_arrived(generation) || broken_.load(std::memory_order_relaxed) != 0 ||
           (abortable && aborted_.load(std::memory_order_relaxed));
  };
  if (!spin_until(done, spin_, mine.patience)) {
    const Deadline deadline(timeout_);
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    const auto settled = [&] {
      if (done()) return true;
      for (const Seat& seat : seats_) {
        if (seat.left.load() && seat.arrived.load() < generation) return true;
      }
      return false;
    };
    in_time = wake_.wait_until(lock, deadline.when(), settled);
    sleepers_.fetch_sub(1);
  }
  // An operation may have been broken off by one who has found everybody, before this rank has: it goes on to the next
  // wait of the operation.
  const auto is_broken = [&] {
    const uint64_t broken = broken_.load();
    return broken != 0 && !(abortable && broken == generation);
  };
  if (all_arrived(generation) && !is_broken()) return;
  const std::string late = in_time ? std::string() : late_text(rank, generation, what);
  if (!in_time) abort(late);
  if (abortable && !is_broken() && withdraw(rank, generation)) return;
  try {
    if (!in_time) throw DeadlineExceeded(late);
    check_alive(rank, generation, what);
  } catch (const Error& error) {
    if (!abortable) break_off(rank, error.what());
    if (is_broken()) mine.out.store(true);  // also one that has come from an operation that it took to be whole
    wake_sleepers();
    throw;
  }
}

// Every rank of the operation comes here, on its way out of its part or from the next wait, and none goes before all
// have come, or have left: so nobody looks any more at what one of them brought.
void Rendezvous::break_off(int rank, const std::string& reason) {
  Seat& mine = seats_[static_cast<std::size_t>(rank)];
  if (mine.out.load()) return;
  const Deadline deadline(timeout_);
  std::unique_lock lock(mutex_);
  if (broken_.load() == 0) {
    broken_reason_ = reason;
    broken_.store(mine.operation);
  }
  mine.out.store(true);
  wake_.notify_all();
  sleepers_.fetch_add(1);
  wake_.wait_until(lock, deadline.when(), [&] {
    return std::all_of(seats_.begin(), seats_.end(),
                       [](const Seat& seat) { return seat.out.load() || seat.left.load(); });
  });
  sleepers_.fetch_sub(1);
}

std::string Rendezvous::failure_text(int rank, const std::string& error) const {
  return c10::str("replica ", name(rank), " failed in ", seats_[static_cast<std::size_t>(rank)].signature.what, ": ",
                  error);
}

bool Rendezvous::has_come(const Seat& seat, uint64_t generation) {
  return seat.arrived.load() >= generation || seat.withdrawn.load() == generation;
}

// What this rank brought lies on its stack, which it is about to leave. Those who come later do not find it here, and
// so do not begin. One who had found everybody before comes to the next wait of the operation; one who waits withdraws,
// too.
bool Rendezvous::withdraw(int rank, uint64_t generation) {
  Seat& mine = seats_[static_cast<std::size_t>(rank)];
  mine.withdrawn.store(generation);
  mine.arrived.store(generation - 1);
  const Deadline deadline(timeout_);
  constexpr std::chrono::microseconds kPause(50);
  for (bool decided = false; !decided && !deadline.passed(); std::this_thread::sleep_for(kPause)) {
    decided = true;
    for (const Seat& seat : seats_) {
      const uint64_t arrived = seat.arrived.load();
      if (arrived > generation || broken_.load() == generation) {
        mine.arrived.store(generation);
        return true;
      }
      decided = decided && (arrived < generation || seat.left.load());
    }
  }
  return false;
}

void Rendezvous::check_alive(int rank, uint64_t generation, std::string_view what) {
  if (aborted_.load()) {
    const std::lock_guard lock(mutex_);
    fail<Cancelled>("[collective] replica ", name(rank), what.empty() ? "" : " in ", what, ": cancelled, because ",
                    reason_);
  }
  for (int other = 0; other < size(); ++other) {
    const Seat& seat = seats_[static_cast<std::size_t>(other)];
    if (!seat.left.load() || has_come(seat, generation)) continue;
    fail<FailedPrecondition>("[collective] replica ", name(rank), " waits in ", what.empty() ? "a collective" : what,
                             " for replica ", name(other),
                             ", which has already returned from its function: all replicas must",
                             " make the same collective calls in the same order");
  }
  if (broken_.load() != 0) {
    const std::lock_guard lock(mutex_);
    fail<Cancelled>("[collective] replica ", name(rank), what.empty() ? "" : " in ", what, ": cancelled, because ",
                    broken_reason_);
  }
  fail<Internal>("[collective] replica ", name(rank), " woke up without a reason");
}

std::string Rendezvous::late_text(int rank, uint64_t generation, std::string_view what) const {
  std::string missing;
  for (int other = 0; other < size(); ++other) {
    const Seat& seat = seats_[static_cast<std::size_t>(other)];
    if (has_come(seat, generation)) continue;
    missing += c10::str(missing.empty() ? "" : ", ", name(other));
  }
  return c10::str("[collective] replica ", name(rank), " waited ", to_text(timeout_), " in ",
                  what.empty() ? "a collective" : what, " for replica(s) ", missing);
}

void Rendezvous::post(int from, int to, Letter letter) {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_.load()) {
      fail<Cancelled>("[collective] replica ", name(from), " in send: cancelled, because ", reason_);
    }
    letters_[{from, to}].push_back(std::move(letter));
    has_letters_.store(true);
  }
  wake_.notify_all();
}

Letter Rendezvous::take(int from, int to) {
  const Deadline deadline(timeout_);
  const Seat& sender = seats_[static_cast<std::size_t>(from)];
  std::unique_lock lock(mutex_);
  const uint64_t run = runs_.load();
  has_letters_.store(true);
  const auto ended = [&] { return aborted_.load() || runs_.load() != run; };
  const auto letters = [&]() -> std::deque<Letter>& { return letters_[{from, to}]; };
  sleepers_.fetch_add(1);
  const bool in_time =
      wake_.wait_until(lock, deadline.when(), [&] { return ended() || !letters().empty() || sender.left.load(); });
  sleepers_.fetch_sub(1);
  if (ended()) {
    fail<Cancelled>("[collective] replica ", name(to), " in recv: cancelled, because ",
                    aborted_.load() ? reason_ : "the replicas have returned from their function");
  }
  if (!letters().empty()) {
    Letter letter = std::move(letters().front());
    letters().pop_front();
    return letter;
  }
  if (in_time) {
    fail<FailedPrecondition>("[collective] replica ", name(to), " waits in recv for replica ", name(from),
                             ", which has already returned from its function");
  }
  fail<DeadlineExceeded>("[collective] replica ", name(to), " waited ", to_text(timeout_), " in recv for replica ",
                         name(from));
}

void Rendezvous::drop_letters() {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [way, letters] : letters_) {
      if (letters.empty() || aborted_.load()) continue;
      log().warn("[collective] replica {} has not received {} tensor(s) that replica {} sent", name(way.second),
                 letters.size(), name(way.first));
    }
    letters_.clear();
  }
  wake_.notify_all();
}

std::shared_ptr<Rendezvous> Rendezvous::branch(std::vector<int> ranks) {
  auto meeting = std::make_shared<Rendezvous>(static_cast<int>(ranks.size()), timeout_, spin_);
  for (const int rank : ranks) meeting->names_.push_back(name(rank));
  const std::lock_guard lock(mutex_);
  std::erase_if(branches_, [](const Branch& old) { return old.meeting.expired(); });
  branches_.push_back({.meeting = meeting, .ranks = ranks});
  has_branches_.store(true);
  // The branch hears from now on of what happens; it hears here of what has happened.
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (seats_[static_cast<std::size_t>(ranks[i])].left.load()) meeting->leave(static_cast<int>(i));
  }
  if (aborted_.load()) meeting->abort(reason_);
  return meeting;
}

std::shared_ptr<Rendezvous> Rendezvous::background() {
  const std::lock_guard lock(mutex_);
  if (!background_) {
    background_ = std::make_shared<Rendezvous>(size(), timeout_, /*spin=*/false);
    background_->names_ = names_;
    if (aborted_.load()) background_->abort(reason_);
    has_branches_.store(true);
  }
  return background_;
}

template <typename Fn>
void Rendezvous::each_branch(const Fn& fn) {
  if (!has_branches_.load()) return;
  std::vector<Branch> branches;
  {
    const std::lock_guard lock(mutex_);
    branches = branches_;
  }
  for (const Branch& branch : branches) {
    if (const auto meeting = branch.meeting.lock()) fn(*meeting, branch.ranks);
  }
}

void Rendezvous::leave(int rank) {
  seats_[static_cast<std::size_t>(rank)].left.store(true);
  wake_sleepers();
  each_branch([&](Rendezvous& branch, const std::vector<int>& ranks) {
    // abort() may not have come to the branch yet: there, too, the reason is the abort and not the leaving.
    if (aborted_.load()) {
      const std::lock_guard lock(mutex_);
      branch.abort(reason_);
    }
    const auto found = std::find(ranks.begin(), ranks.end(), rank);
    if (found != ranks.end()) branch.leave(static_cast<int>(found - ranks.begin()));
  });
}

void Rendezvous::abort(const std::string& reason) {
  std::shared_ptr<Rendezvous> background;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_.load()) return;
    reason_ = reason;
    aborted_.store(true);
    background = background_;
  }
  wake_.notify_all();
  if (background) background->abort(reason);
  each_branch([&](Rendezvous& branch, const auto&) { branch.abort(reason); });
}

void Rendezvous::wake_sleepers() {
  if (sleepers_.load() == 0) return;
  { const std::lock_guard lock(mutex_); }  // a sleeper between its test and its sleep must not miss this
  wake_.notify_all();
}

void Rendezvous::forget_operations() {
  for (Seat& seat : seats_) {
    seat.arrived.store(0);
    seat.withdrawn.store(0);
    seat.out.store(false);
    seat.signature = {};
    seat.data = nullptr;
  }
  const std::lock_guard lock(mutex_);
  broken_reason_.clear();
  broken_.store(0);
}

void Rendezvous::forget_ended_background() {
  const std::lock_guard lock(mutex_);
  if (background_ && (background_->aborted() || background_->broken_.load() != 0)) background_ = nullptr;
}

void Rendezvous::reopen() {
  if (broken_.load() != 0) forget_operations();
  if (has_branches_.load()) forget_ended_background();
  for (Seat& seat : seats_) seat.left.store(false, std::memory_order_relaxed);
  runs_.fetch_add(1);
  if (has_letters_.load()) {
    has_letters_.store(false);
    drop_letters();
  }
  each_branch([](Rendezvous& branch, const auto&) { branch.reopen(); });
}

void Rendezvous::reset() {
  runs_.fetch_add(1);
  drop_letters();
  forget_operations();
  for (Seat& seat : seats_) seat.left.store(false);
  forget_ended_background();
  {
    const std::lock_guard lock(mutex_);
    reason_.clear();
    aborted_.store(false);
  }
  each_branch([](Rendezvous& branch, const auto&) { branch.reset(); });
}

}  // namespace cohort
