#include "wings/parameter_server/coordinator/closure_queue.h"

#include <algorithm>

#include "base/deadline.h"
#include "base/error_text.h"
#include "base/fail.h"

namespace cohort {

namespace {

std::size_t bytes_of(const Closure& closure) {
  std::size_t bytes = sizeof(Closure);
  for (const torch::Tensor& tensor : closure.arguments) bytes += tensor.nbytes();
  return bytes;
}

std::exception_ptr cancelled(const std::string& why) {
  return std::make_exception_ptr(Cancelled("[coordinator] the step was cancelled: " + why));
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return error_text(known);
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace

ClosureQueue::ClosureQueue(const ClosureQueueOptions& options) : options_(options) {
  const auto& [kind, staleness, backup_workers] = options_.consistency;
  if (staleness < 0 || backup_workers < 0) {
    cohort::fail<InvalidArgument>("[coordinator] consistency: staleness is ", staleness, " and backup_workers ",
                                  backup_workers, ", wanted 0 or more");
  }
  if ((staleness != Consistency().staleness && kind != Consistency::Kind::kBoundedStaleness) ||
      (backup_workers != 0 && kind != Consistency::Kind::kSynchronous)) {
    cohort::fail<InvalidArgument>("[coordinator] consistency: staleness or backup_workers came for another kind");
  }
}

void ClosureQueue::on_change(std::function<void()> callback) {
  const std::lock_guard lock(mutex_);
  on_change_ = std::move(callback);
}

// Tells the listener. The caller does not hold the lock.
void ClosureQueue::changed() {
  wake_.notify_all();
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    ++events_;
    callback = on_change_;
  }
  if (callback) callback();
}

// -- The user's side.

void ClosureQueue::wait(Lock& lock, const char* what, const std::function<bool()>& until) {
  uint64_t seen = events_;
  Deadline deadline(options_.timeout);
  while (!until()) {
    wake_.wait_until(lock, deadline.when());
    if (events_ != seen) {
      seen = events_;
      deadline = Deadline(options_.timeout);
    } else if (deadline.passed()) {
      cohort::fail<DeadlineExceeded>("[coordinator] ", what, ": nothing has happened for ", to_text(options_.timeout),
                                     "; ", table_.queued.size(), " steps are queued, ", who_runs());
    }
  }
}

std::string ClosureQueue::who_runs() const {
  if (table_.workers.empty()) return "and no worker is there";
  std::string text = c10::str(table_.running.size(), " are run by");
  for (const auto& [index, worker] : table_.workers) {
    if (worker.running > 0) text += c10::str(" worker ", index, ",");
  }
  if (text.back() != ',') return "and no worker has one";
  text.pop_back();
  return text;
}

void ClosureQueue::raise_error(Lock& lock, const char* what) {
  if (!error_) return;
  wait(lock, what, [&] { return table_.running.empty(); });
  cancel(table_.queued);
  std::rethrow_exception(std::exchange(error_, nullptr));
}

std::vector<std::shared_ptr<RemoteValueState>> ClosureQueue::schedule(const std::string& step,
                                                                      std::vector<std::vector<torch::Tensor>> shares,
                                                                      const std::vector<double>& weights) {
  std::vector<std::shared_ptr<RemoteValueState>> values;
  {
    Lock lock(mutex_);
    wait(lock, "schedule", [&] { return error_ || table_.queued.size() < options_.capacity; });
    raise_error(lock, "schedule");
    const auto count = static_cast<int64_t>(shares.size());
    const bool together = options_.consistency.kind == Consistency::Kind::kSynchronous;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t id = next_id_++;
      Entry& entry = table_.entries[id];
      entry.closure = {.id = id,
                       .step = step,
                       .arguments = std::move(shares[static_cast<std::size_t>(i)]),
                       .share = together ? Share{.index = i, .count = count} : Share{},
                       .weight = !together         ? 1.0
                                 : weights.empty() ? 1.0 / static_cast<double>(count)
                                                   : weights.at(static_cast<std::size_t>(i))};
      entry.closure.exact = together;
      entry.closure.after = changes_;
      entry.value = std::make_shared<RemoteValueState>();
      entry.group = next_group_;
      table_.queued.insert(id);
      values.push_back(entry.value);
    }
    ++next_group_;
  }
  changed();
  return values;
}

void ClosureQueue::join() {
  Lock lock(mutex_);
  wait(lock, "join", [&] { return error_ || (table_.queued.empty() && table_.running.empty()); });
  raise_error(lock, "join");
}

bool ClosureQueue::done() {
  Lock lock(mutex_);
  raise_error(lock, "done");
  return table_.queued.empty() && table_.running.empty();
}

void ClosureQueue::note_change() {
  const std::lock_guard lock(mutex_);
  ++changes_;
}

int64_t ClosureQueue::next_id() const {
  const std::lock_guard lock(mutex_);
  return next_id_;
}

void ClosureQueue::begin_at(int64_t id) {
  const std::lock_guard lock(mutex_);
  if (!table_.entries.empty())
    cohort::fail<FailedPrecondition>("[coordinator] there is work already: nothing can be restored");
  next_id_ = id;
  kept_from_ = id;
}

int64_t ClosureQueue::done_below() const {
  const std::lock_guard lock(mutex_);
  int64_t least = next_id_;
  if (!table_.queued.empty()) least = std::min(least, *table_.queued.begin());
  if (!table_.running.empty()) least = std::min(least, *table_.running.begin());
  return least;
}

void ClosureQueue::cancel(std::set<int64_t>& ids) {
  if (ids.empty()) return;
  const std::exception_ptr error = cancelled(text_of(error_));
  for (const int64_t id : ids) {
    Entry& entry = table_.entries.at(id);
    release(entry);
    entry.value->set_error(error);
    table_.entries.erase(id);
  }
  ids.clear();
}

void ClosureQueue::fail(const std::exception_ptr& error) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
    cancel(table_.queued);
    cancel(table_.running);
  }
  changed();
}

// -- The workers' side.

void ClosureQueue::add_worker(int worker, uint64_t session) {
  {
    const std::lock_guard lock(mutex_);
    if (!end_session(worker, session)) return;
    int64_t least = table_.workers.empty() ? 0 : INT64_MAX;  // a newcomer is as far as the slowest one
    for (const auto& [index, other] : table_.workers) least = std::min(least, other.steps);
    table_.workers[worker] = ClosureTable::Worker{.steps = least, .session = session};
  }
  changed();
}

void ClosureQueue::lose_worker(int worker, uint64_t session) {
  {
    const std::lock_guard lock(mutex_);
    if (!end_session(worker, session)) return;
  }
  changed();
}

// Ends the worker's stay, unless it is a later one than this. Returns whether the worker is gone.
bool ClosureQueue::end_session(int worker, uint64_t session) {
  const auto known = table_.workers.find(worker);
  if (known == table_.workers.end()) return true;
  if (known->second.session > session) return false;
  put_back(worker, {});
  table_.workers.erase(worker);
  return true;
}

std::optional<Closure> ClosureQueue::take(int worker, bool sparingly) {
  const std::lock_guard lock(mutex_);
  if (error_) return std::nullopt;
  const std::optional<int64_t> id = next_closure(table_, options_.consistency, worker, sparingly);
  if (!id) return std::nullopt;
  Entry& entry = table_.entries.at(*id);
  table_.queued.erase(*id);
  table_.running.insert(*id);
  entry.state = State::kRunning;
  entry.closure.attempt = ++attempts_;
  entry.runners[worker] = attempts_;
  ++table_.workers.at(worker).running;
  ++events_;
  return entry.closure;
}

void ClosureQueue::keep_only(int worker, const std::set<int64_t>& holding) {
  {
    const std::lock_guard lock(mutex_);
    put_back(worker, holding);
  }
  changed();
}

void ClosureQueue::put_back(int worker, const std::set<int64_t>& holding) {
  std::vector<int64_t> lost;
  for (const int64_t id : table_.running) {
    if (!holding.contains(id) && table_.entries.at(id).runners.contains(worker)) lost.push_back(id);
  }
  for (const int64_t id : lost) {
    Entry& entry = table_.entries.at(id);
    entry.runners.erase(worker);
    --table_.workers.at(worker).running;
    if (entry.runners.empty()) requeue(entry);
  }
}

void ClosureQueue::requeue(Entry& entry) {
  const int64_t id = entry.closure.id;
  table_.running.erase(id);
  entry.state = State::kQueued;
  entry.again = false;
  entry.made = false;
  if (error_) {
    entry.value->set_error(cancelled(text_of(error_)));
    table_.entries.erase(id);
    return;
  }
  table_.queued.insert(id);
}

void ClosureQueue::complete(Entry& entry) {
  const int64_t id = entry.closure.id;
  table_.running.erase(id);
  release(entry);  // other workers that run the closure do so in vain
  entry.state = State::kDone;
  ++logged_;
  logged_bytes_ += bytes_of(entry.closure);
  if (logged_ > options_.log_closures || logged_bytes_ > options_.log_bytes) drop_log();
}

void ClosureQueue::drop_log() {
  std::erase_if(table_.entries, [&](const auto& item) {
    if (item.second.state != State::kDone) return false;
    kept_from_ = std::max(kept_from_, item.first + 1);
    return true;
  });
  logged_ = 0;
  logged_bytes_ = 0;
}

// Returns the closure, if the worker has it by this attempt, or null.
ClosureQueue::Entry* ClosureQueue::held(int worker, int64_t id, uint64_t attempt) {
  const auto found = table_.entries.find(id);
  if (found == table_.entries.end()) return nullptr;  // another worker was first
  const auto runner = found->second.runners.find(worker);
  if (runner == found->second.runners.end() || (attempt != kPresent && attempt != runner->second)) return nullptr;
  return &found->second;
}

// Takes the closure from all workers that have it.
void ClosureQueue::release(Entry& entry) {
  for (const auto& [worker, attempt] : entry.runners) --table_.workers.at(worker).running;
  entry.runners.clear();
}

void ClosureQueue::finish(int worker, int64_t id, std::vector<torch::Tensor> result, uint64_t attempt) {
  {
    const std::lock_guard lock(mutex_);
    Entry* const found = held(worker, id, attempt);
    if (!found) return;
    Entry& entry = *found;
    ++table_.workers.at(worker).steps;
    ++changes_;
    if (entry.again) {
      release(entry);
      entry.value->set(std::move(result));
      requeue(entry);
    } else {
      entry.value->set(std::move(result));
      complete(entry);
    }
  }
  changed();
}

void ClosureQueue::leave(int worker, int64_t id, uint64_t attempt) {
  {
    const std::lock_guard lock(mutex_);
    Entry* const found = held(worker, id, attempt);
    if (!found) return;
    Entry& entry = *found;
    entry.made = true;
    entry.runners.erase(worker);
    --table_.workers.at(worker).running;
    if (entry.runners.empty()) {
      // The worker that made a part of the update is gone. The rest is made with the present values.
      entry.closure.exact = false;
      requeue(entry);
    }
  }
  changed();
}

void ClosureQueue::finish_with(int worker, int64_t id, const std::exception_ptr& error, uint64_t attempt) {
  {
    const std::lock_guard lock(mutex_);
    Entry* const entry = held(worker, id, attempt);
    if (!entry) return;
    release(*entry);
    table_.running.erase(id);
    entry->value->set_error(error);
    table_.entries.erase(id);
    if (!error_) error_ = error;
    cancel(table_.queued);
  }
  changed();
}

// -- The servers' side.

bool ClosureQueue::replay(int64_t from) {
  bool whole = true;
  {
    const std::lock_guard lock(mutex_);
    whole = from >= kept_from_;
    for (auto entry_of = table_.entries.lower_bound(from); entry_of != table_.entries.end(); ++entry_of) {
      Entry& entry = entry_of->second;
      if (entry.state == State::kRunning) entry.again = true;
      if (entry.state != State::kDone) continue;
      entry.state = State::kQueued;
      table_.queued.insert(entry_of->first);
      --logged_;
      logged_bytes_ -= bytes_of(entry.closure);
    }
  }
  changed();
  return whole;
}

void ClosureQueue::forget_before(int64_t id) {
  const std::lock_guard lock(mutex_);
  std::erase_if(table_.entries, [&](const auto& item) {
    if (item.first >= id || item.second.state != State::kDone) return false;
    --logged_;
    logged_bytes_ -= bytes_of(item.second.closure);
    return true;
  });
  kept_from_ = std::max(kept_from_, id);
}

}  // namespace cohort
