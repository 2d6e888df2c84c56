// One replica runs on the caller's thread. Several run on a thread each, of which replica 0's is the caller's: when one
// fails, the others are freed from whatever they wait for, and the error of the first one that failed is the caller's.
#include "strategy/launch.h"

#include <ATen/ThreadLocalState.h>

#include <algorithm>

#include "base/error_text.h"
#include "base/fail.h"
#include "cohort/trace.h"
#include "strategy/context.h"
#include "strategy/core.h"
#include "strategy/replica_threads.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

class OneReplica final : public Launch {
 public:
  explicit OneReplica(StrategyCore& core) : core_(core) {}

  void run(const std::shared_ptr<detail::Job>& job) override {
    try {
      core_.call(*job, 0);
    } catch (...) {
      core_.optimizers().drop_steps();
      throw;
    }
  }
  bool has_threads() const override { return false; }

  void meet(int /*local_id*/, std::string_view /*what*/, void* mine,
            const std::function<void(std::span<void* const>)>& lead) override {
    const ReplicaContext merged(nullptr);
    lead({&mine, 1});
  }

  void arrive(int /*local_id*/, std::string_view /*what*/) override {}
  void sync(int /*local_id*/) override {}
  void depart(int /*local_id*/) override {}

  PathFacts facts() const override {
    return {.add_in_place = true, .no_messages_in_place = kReason, .no_messages = kReason};
  }

  void enter_device(std::optional<DeviceScope>& scope) const override { scope.emplace(core_.plan().devices.front()); }

 private:
  static constexpr const char* kReason = "there is one replica";

  StrategyCore& core_;
};

class ThreadForEach final : public Launch {
 public:
  ThreadForEach(StrategyCore& core, bool spin) : core_(core), threads_(core.num_local_replicas(), spin) {}

  void run(const std::shared_ptr<detail::Job>& job) override;
  bool has_threads() const override { return true; }
  void meet(int local_id, std::string_view what, void* mine,
            const std::function<void(std::span<void* const>)>& lead) override;
  void arrive(int local_id, std::string_view what) override {
    const TraceSpan span("communication", "meet the other replicas");
    core_.rendezvous().arrive(local_id, {.what = what}, nullptr);
  }
  void sync(int local_id) override { core_.rendezvous().sync(local_id); }
  void depart(int local_id) override { core_.rendezvous().depart(local_id); }

  PathFacts facts() const override { return {.no_messages_in_place = "the replicas add them up in place"}; }
  void enter_device(std::optional<DeviceScope>& /*scope*/) const override {}

 private:
  // The end of one replica's part of a run.
  struct Outcome {
    std::exception_ptr error;
    // The errors that are nearer to the cause have smaller numbers: those of replicas that failed first, then others,
    // and last Cancelled, which comes because of another replica, maybe before the error of that one.
    int distance = 0;
  };

  void run_replica(detail::Job& job, int local_id, std::vector<Outcome>& outcomes);
  [[noreturn]] void give_up_on_missing(std::vector<Outcome>& outcomes);
  void rethrow_first(std::vector<Outcome>& outcomes);

  StrategyCore& core_;
  bool broken_ = false;  // a replica never came back
  ReplicaThreads threads_;
};

void ThreadForEach::run(const std::shared_ptr<detail::Job>& job) {
  if (broken_) {
    fail<FailedPrecondition>("[strategy] ", core_.plan().name, ": a replica of an earlier run() never came back, so ",
                             "this strategy cannot be used any more; make a new one");
  }
  struct Shared {
    std::shared_ptr<StrategyCore> core;  // keeps this object, too, while a thread is stuck
    std::shared_ptr<detail::Job> job;
    at::ThreadLocalState caller;
    std::vector<Outcome> outcomes;
  };
  const auto shared = std::make_shared<Shared>();
  shared->core = core_.shared_from_this();
  shared->job = job;
  shared->outcomes.resize(core_.plan().devices.size());

  const auto work = std::make_shared<const ReplicaThreads::Work>([this, shared](int local_id) {
    if (local_id == 0) {
      run_replica(*shared->job, 0, shared->outcomes);
      return;
    }
    const at::ThreadLocalStateGuard as_caller(shared->caller);
    run_replica(*shared->job, local_id, shared->outcomes);
  });
  if (!threads_.run(work, core_.plan().exchange.timeout)) give_up_on_missing(shared->outcomes);
  rethrow_first(shared->outcomes);
}

void ThreadForEach::run_replica(detail::Job& job, int local_id, std::vector<Outcome>& outcomes) {
  Outcome& outcome = outcomes[static_cast<std::size_t>(local_id)];
  const auto failed = [&](const std::string& what, bool cancelled) {
    outcome = {std::current_exception(), cancelled ? 2 : core_.rendezvous().aborted() ? 1 : 0};
    core_.rendezvous().abort(c10::str("replica ", local_id, " failed: ", what));
    // A replica of this process may be waiting for other workers, and they for it.
    if (!cancelled) core_.workers().fail(c10::str("replica ", core_.replica_id(local_id), " failed: ", what));
  };
  try {
    core_.call(job, local_id);
  } catch (const Cancelled& error) {
    failed(error_text(error), true);
  } catch (const std::exception& error) {
    failed(error_text(error), false);
  } catch (...) {
    failed(kNoStdException, false);
  }
  core_.rendezvous().leave(local_id);
}

void ThreadForEach::give_up_on_missing(std::vector<Outcome>& outcomes) {
  broken_ = true;
  const std::vector<int> missing = threads_.missing();
  std::string names;
  for (const int local_id : missing) names += c10::str(names.empty() ? "" : ", ", local_id);
  const std::string message =
      c10::str("[strategy] ", core_.plan().name, ": replica(s) ", names, " had not returned from their function ",
               to_text(core_.plan().exchange.timeout), " after replica 0 did");
  core_.rendezvous().abort(message);
  // The error of a replica that did come back is nearer to the cause. The others may still be writing their outcome.
  for (int local_id = 0; local_id < core_.num_local_replicas(); ++local_id) {
    if (std::find(missing.begin(), missing.end(), local_id) != missing.end()) continue;
    const std::exception_ptr error = std::exchange(outcomes[static_cast<std::size_t>(local_id)].error, nullptr);
    if (error) std::rethrow_exception(error);
  }
  throw DeadlineExceeded(message);
}

// Takes the errors out of the outcomes, which a replica's thread may be the last to let go of: an exception is to die
// in the thread that catches it.
void ThreadForEach::rethrow_first(std::vector<Outcome>& outcomes) {
  const std::vector<Outcome> ends = std::exchange(outcomes, {});
  const Outcome* first = nullptr;
  for (const Outcome& outcome : ends) {
    if (!outcome.error) continue;
    if (first == nullptr || outcome.distance < first->distance) first = &outcome;
  }
  if (first == nullptr) {
    core_.rendezvous().reopen();
    return;
  }
  core_.rendezvous().reset();
  core_.optimizers().drop_steps();
  std::rethrow_exception(first->error);
}

void ThreadForEach::meet(int local_id, std::string_view what, void* mine,
                         const std::function<void(std::span<void* const>)>& lead) {
  Rendezvous& rendezvous = core_.rendezvous();
  rendezvous.arrive(local_id, {.what = what}, mine);
  std::exception_ptr error;
  if (local_id == 0) {
    std::vector<void*> all;
    for (int i = 0; i < core_.num_local_replicas(); ++i) all.push_back(rendezvous.data(i));
    try {
      const ReplicaContext merged(nullptr);
      lead(all);
    } catch (const std::exception& failure) {
      error = std::current_exception();
      rendezvous.abort(c10::str("the function given to ", what, " failed: ", error_text(failure)));
    }
  }
  rendezvous.depart(local_id);
  if (error) std::rethrow_exception(error);
  if (rendezvous.aborted()) fail<Cancelled>("[strategy] replica ", local_id, " in ", what, ": the function failed");
}

}  // namespace

std::unique_ptr<Launch> make_launch(StrategyCore& core, bool spin) {
  if (core.num_local_replicas() == 1) return std::make_unique<OneReplica>(core);
  return std::make_unique<ThreadForEach>(core, spin);
}

}  // namespace cohort
