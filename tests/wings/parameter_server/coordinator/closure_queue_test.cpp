#include "wings/parameter_server/coordinator/closure_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <random>
#include <thread>

#include "cohort/cluster/remote_value.h"
#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::closure_queue_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::expect_error;
using Ids = std::vector<int64_t>;

RemoteValue add(ClosureQueue& queue, double argument = 0.0) {
  return RemoteValue(queue.schedule("step", {{torch::tensor(argument)}}).front());
}

Ids take_all(ClosureQueue& queue, int worker) {
  Ids ids;
  while (const auto closure = queue.take(worker)) ids.push_back(closure->id);
  return ids;
}

std::exception_ptr an_error(const std::string& text) {
  return std::make_exception_ptr(InvalidArgument(text));
}

TEST(ClosureQueue, WorkIsHandedOutInOrderAndItsResultsFetched) {
  ClosureQueue queue({});
  queue.add_worker(0);
  queue.add_worker(1);
  EXPECT_TRUE(queue.done());
  const RemoteValue first = add(queue, 3.0);
  const RemoteValue second = add(queue);
  EXPECT_FALSE(queue.done());
  const auto closure = queue.take(1);
  ASSERT_TRUE(closure);
  EXPECT_EQ(closure->id, 0);
  EXPECT_EQ(closure->step, "step");
  EXPECT_EQ(closure->arguments[0].item<double>(), 3.0);
  EXPECT_EQ(closure->share.count, 1);
  EXPECT_EQ(take_all(queue, 0), (Ids{1}));
  EXPECT_EQ(queue.take(7), std::nullopt) << "a worker that is not there";
  EXPECT_EQ(queue.done_below(), 0);
  EXPECT_FALSE(first.ready());
  expect_error<DeadlineExceeded>([&] { (void)first.fetch(milliseconds(10)); }, "has not ended within 10 ms");
  queue.finish(1, 0, {torch::tensor(5.0)});
  EXPECT_EQ(first.fetch()[0].item<double>(), 5.0);
  EXPECT_FALSE(queue.done());
  queue.finish(0, 1, {});
  queue.join();
  EXPECT_TRUE(queue.done());
  EXPECT_TRUE(second.ready());
  EXPECT_EQ(queue.next_id(), 2);
  EXPECT_EQ(queue.done_below(), 2);
  expect_error<FailedPrecondition>([] { (void)RemoteValue().fetch(); }, "was not made by schedule()");
}

TEST(ClosureQueue, WhatALostWorkerHadGoesToOthers) {
  ClosureQueue queue({});
  queue.add_worker(0);
  queue.add_worker(1);
  for (int i = 0; i < 4; ++i) add(queue);
  (void)queue.take(0);
  (void)queue.take(1);
  (void)queue.take(0);
  queue.lose_worker(0);
  EXPECT_EQ(take_all(queue, 1), (Ids{0, 2, 3})) << "the oldest first";
  queue.finish(0, 0, {});  // a late answer of the lost one
  EXPECT_FALSE(queue.done());
  for (const int64_t id : {0, 1, 2, 3}) queue.finish(1, id, {});
  EXPECT_TRUE(queue.done());

  add(queue);
  add(queue);
  EXPECT_EQ(take_all(queue, 1), (Ids{4, 5}));
  queue.keep_only(1, {5});  // the answer with 4 was lost on the way
  EXPECT_EQ(take_all(queue, 1), (Ids{4}));
  queue.add_worker(1);  // a new process
  EXPECT_EQ(take_all(queue, 1), (Ids{4, 5}));
}

// The first error is thrown once, by the next call, when nothing runs any more; what was queued is cancelled.
TEST(ClosureQueue, ErrorsReachTheNextCall) {
  for (const std::string call : {"join", "done", "schedule"}) {
    SCOPED_TRACE(call);
    ClosureQueue queue({});
    queue.add_worker(0);
    std::vector<RemoteValue> values;
    for (int i = 0; i < 4; ++i) values.push_back(add(queue));
    (void)queue.take(0);
    (void)queue.take(0);
    queue.finish_with(0, 1, an_error("the first"));
    EXPECT_EQ(queue.take(0), std::nullopt) << "nothing is begun any more";
    std::atomic<bool> finished = false;
    std::jthread other([&] {
      std::this_thread::sleep_for(milliseconds(50));
      finished = true;
      queue.finish_with(0, 0, an_error("the second"));
    });
    expect_error<InvalidArgument>(
        [&] {
          if (call == "join") queue.join();
          if (call == "done") (void)queue.done();
          if (call == "schedule") add(queue);
        },
        "the first");
    EXPECT_TRUE(finished);
    other.join();
    expect_error<InvalidArgument>([&] { (void)values[0].fetch(); }, "the second");
    expect_error<InvalidArgument>([&] { (void)values[1].fetch(); }, "the first");
    for (const std::size_t i : {2, 3}) {
      expect_error<Cancelled>([&] { (void)values[i].fetch(); }, "the step was cancelled: the first");
    }
    const RemoteValue again = add(queue);
    EXPECT_EQ(take_all(queue, 0), (Ids{4})) << "ids are not used twice";
    queue.finish(0, 4, {});
    queue.join();
    EXPECT_TRUE(again.fetch().empty());
  }
}

TEST(ClosureQueue, AnErrorOfTheServersIsRaisedAndARequeuedStepCancelled) {
  ClosureQueue queue({});
  queue.add_worker(0);
  const RemoteValue running = add(queue);
  const RemoteValue queued = add(queue);
  (void)queue.take(0);
  queue.fail(std::make_exception_ptr(Unavailable("ps 1 is gone")));
  expect_error<Unavailable>([&] { queue.join(); }, "ps 1 is gone");
  expect_error<Cancelled>([&] { (void)running.fetch(); }, "ps 1 is gone");
  expect_error<Cancelled>([&] { (void)queued.fetch(); }, "ps 1 is gone");
  queue.finish(0, 0, {});  // nobody asks for it any more
  EXPECT_TRUE(queue.done());
}

TEST(ClosureQueue, NobodyWaitsWithoutEnd) {
  ClosureQueue queue({.capacity = 2, .timeout = milliseconds(100)});
  add(queue);
  expect_error<DeadlineExceeded>([&] { queue.join(); },
                                 "join: nothing has happened for 100 ms; 1 steps are queued, and no worker is there");
  queue.add_worker(3);
  (void)queue.take(3);
  expect_error<DeadlineExceeded>([&] { queue.join(); }, "0 steps are queued, 1 are run by worker 3");
  add(queue);
  add(queue);
  expect_error<DeadlineExceeded>([&] { add(queue); }, "schedule: nothing has happened");
}

TEST(ClosureQueue, AWaitGoesOnAsLongAsSomethingHappens) {
  ClosureQueue queue({.timeout = seconds(1)});
  queue.add_worker(3);
  for (int i = 0; i < 6; ++i) add(queue);
  std::jthread worker([&] {
    for (int i = 0; i < 6; ++i) {  // together longer than nothing may happen
      std::this_thread::sleep_for(milliseconds(200));
      queue.finish(3, queue.take(3)->id, {});
    }
  });
  queue.join();
}

TEST(ClosureQueue, SynchronousStepsFollowEachOther) {
  ClosureQueue queue({.consistency = {.kind = Consistency::Kind::kSynchronous}});
  for (int worker = 0; worker < 3; ++worker) queue.add_worker(worker);
  (void)queue.schedule("step", {{}, {}});
  (void)queue.schedule("step", {{}, {}});
  const auto first = queue.take(0);
  const auto second = queue.take(1);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->share.index, 0);
  EXPECT_EQ(second->share.index, 1);
  EXPECT_EQ(second->share.count, 2);
  EXPECT_EQ(queue.take(2), std::nullopt);
  queue.finish(1, 1, {});
  EXPECT_EQ(queue.take(1), std::nullopt) << "the other share is still under way";
  queue.finish(0, 0, {});
  EXPECT_EQ(take_all(queue, 2), (Ids{2, 3}));
}

TEST(ClosureQueue, BackupWorkersDoubleWhatIsSlow) {
  ClosureQueue queue({.consistency = {.kind = Consistency::Kind::kSynchronous, .backup_workers = 1}});
  for (int worker = 0; worker < 4; ++worker) queue.add_worker(worker);
  const auto values = queue.schedule("step", {{}, {}});
  (void)queue.schedule("step", {{}, {}});
  (void)queue.take(0);
  EXPECT_EQ(queue.take(1)->id, 1);
  EXPECT_EQ(queue.take(2)->id, 0) << "once more";
  EXPECT_EQ(queue.take(3), std::nullopt) << "only one at a time";
  queue.finish(2, 0, {torch::tensor(2.0)});
  queue.finish(0, 0, {torch::tensor(1.0)});
  EXPECT_EQ(RemoteValue(values[0]).fetch()[0].item<double>(), 2.0) << "the first counts";
  EXPECT_EQ(queue.take(3)->id, 1);
  queue.leave(3, 1);
  EXPECT_FALSE(values[1]->ready()) << "the one has overtaken the other, and will say what it found";
  EXPECT_EQ(queue.take(3), std::nullopt) << "so that there is nothing to double";
  queue.lose_worker(1);
  EXPECT_TRUE(queue.take(3)->exact);
  EXPECT_EQ(queue.take(0)->id, 1) << "twice";
  queue.lose_worker(0);
  queue.add_worker(0);
  queue.leave(3, 1);
  const auto left = queue.take(3);
  EXPECT_EQ(left->id, 1) << "nobody else is there to make the rest of it";
  EXPECT_FALSE(left->exact);
  queue.finish(3, 1, {});
  EXPECT_EQ(take_all(queue, 3), (Ids{2, 3}));
}

TEST(ClosureQueue, BoundedStalenessHoldsTheFastestBack) {
  ClosureQueue queue({.consistency = {.kind = Consistency::Kind::kBoundedStaleness, .staleness = 2}});
  queue.add_worker(0);
  queue.add_worker(1);
  for (int i = 0; i < 20; ++i) add(queue);
  const auto run = [&](int worker) {
    const auto closure = queue.take(worker);
    if (closure) queue.finish(worker, closure->id, {});
    return closure.has_value();
  };
  EXPECT_TRUE(run(0));
  EXPECT_TRUE(run(0));
  EXPECT_TRUE(run(0));
  EXPECT_FALSE(run(0)) << "three steps ahead, when two are allowed to one that begins";
  EXPECT_TRUE(run(1));
  EXPECT_TRUE(run(0));
  EXPECT_FALSE(run(0));
  queue.add_worker(2);  // counts from the slowest
  EXPECT_FALSE(run(0));
  queue.lose_worker(1);
  EXPECT_TRUE(run(2));
  EXPECT_TRUE(run(0));
}

TEST(ClosureQueue, WorkSinceTheLastCheckpointIsDoneAgain) {
  ClosureQueue queue({});
  queue.add_worker(0);
  for (int i = 0; i < 5; ++i) add(queue);
  for (int i = 0; i < 4; ++i) (void)queue.take(0);
  for (const int64_t id : {0, 1, 2}) queue.finish(0, id, {torch::tensor(1.0)});
  queue.forget_before(1);
  EXPECT_TRUE(queue.replay(1));  // 1 and 2 were done, 3 is under way, 4 is queued
  EXPECT_EQ(take_all(queue, 0), (Ids{1, 2, 4}));
  queue.finish(0, 3, {});
  EXPECT_EQ(take_all(queue, 0), (Ids{3})) << "it was begun before";
  for (const int64_t id : {1, 2, 3, 4}) queue.finish(0, id, {});
  EXPECT_TRUE(queue.done());
  queue.forget_before(5);
  EXPECT_TRUE(queue.replay(5));
  EXPECT_TRUE(queue.done());
}

// A server is being filled from the checkpoint before, when another checkpoint ends the memory of the work since then.
// The queue says that it cannot repeat that work, so that the server is filled from the newer one.
TEST(ClosureQueue, WorkThatACheckpointHasIsNotRepeatedForAnOlderOne) {
  ClosureQueue queue({});
  queue.add_worker(0);
  for (int i = 0; i < 4; ++i) add(queue);
  for (const int64_t id : take_all(queue, 0)) queue.finish(0, id, {});
  queue.forget_before(3);
  EXPECT_FALSE(queue.replay(2)) << "2 is not kept";
  EXPECT_EQ(take_all(queue, 0), (Ids{3}));
  queue.finish(0, 3, {});
  EXPECT_TRUE(queue.replay(3));
  EXPECT_EQ(take_all(queue, 0), (Ids{3}));
  add(queue);
  (void)queue.take(0);  // 4, which the checkpoint does not have either
  EXPECT_TRUE(queue.replay(5));
  queue.finish(0, 4, {});
  EXPECT_EQ(take_all(queue, 0), Ids()) << "work before that is in the values, and is not repeated";
}

// A worker reports a closure twice, because no answer came. Before the second report arrives a server is lost, and the
// worker gets the closure once more: it has not done it for that server yet.
TEST(ClosureQueue, AReportThatIsLateSaysNothingOfALaterAttempt) {
  ClosureQueue queue({});
  queue.add_worker(0);
  add(queue);
  const uint64_t first = queue.take(0)->attempt;
  queue.finish(0, 0, {}, first);
  EXPECT_TRUE(queue.replay(0));
  const uint64_t second = queue.take(0)->attempt;
  queue.finish(0, 0, {}, first);
  queue.leave(0, 0, first);
  queue.finish_with(0, 0, std::make_exception_ptr(std::runtime_error("late")), first);
  EXPECT_EQ(queue.done_below(), 0);
  queue.finish(0, 0, {}, second);
  EXPECT_TRUE(queue.done());
  // Nor of what the next coordinator has given to the same worker. The simulation found this (seed 671519).
  ClosureQueue next({});
  next.add_worker(0);
  add(next);
  EXPECT_EQ(next.take(0)->id, 0);
  next.finish(0, 0, {}, first);
  EXPECT_EQ(next.done_below(), 0);
}

// A worker that is taken for lost joins at that moment. Ending its earlier stay must not end the new one.
TEST(ClosureQueue, ALaterStayOfAWorkerIsNotEndedByALateLoss) {
  ClosureQueue queue({});
  queue.add_worker(0, 1);
  add(queue);
  add(queue);
  EXPECT_EQ(queue.take(0)->id, 0);
  queue.add_worker(0, 2);
  EXPECT_EQ(queue.take(0)->id, 0) << "what the earlier stay held is free again";
  queue.lose_worker(0, 1);
  queue.add_worker(0, 1);
  EXPECT_EQ(queue.take(0)->id, 1) << "it is there, and holds 0";
  queue.lose_worker(0, 2);
  EXPECT_EQ(queue.take(0), std::nullopt);
  queue.add_worker(1);
  EXPECT_EQ(take_all(queue, 1), (Ids{0, 1}));
}

TEST(ClosureQueue, TheLogIsBounded) {
  for (const bool by_bytes : {false, true}) {
    ClosureQueue queue({.log_closures = by_bytes ? 1000U : 3U, .log_bytes = by_bytes ? 2000U : 1U << 20});
    queue.add_worker(0);
    const auto run = [&](int count) {
      for (int i = 0; i < count; ++i) {
        (void)queue.schedule("step", {{torch::zeros({100})}});
        queue.finish(0, queue.take(0)->id, {});
      }
    };
    run(3);
    EXPECT_TRUE(queue.replay(0));
    for (const int64_t id : take_all(queue, 0)) queue.finish(0, id, {});
    run(3);
    EXPECT_FALSE(queue.replay(0)) << "not all of it is known any more";
    for (const int64_t id : take_all(queue, 0)) queue.finish(0, id, {});
    queue.forget_before(queue.next_id());
    EXPECT_FALSE(queue.replay(0));
    EXPECT_TRUE(queue.replay(queue.next_id())) << "a checkpoint has it";
    EXPECT_TRUE(queue.done());
  }
}

TEST(ClosureQueue, GoesOnWhereARunBeforeWas) {
  ClosureQueue queue({});
  queue.begin_at(40);
  queue.add_worker(0);
  add(queue);
  EXPECT_EQ(queue.take(0)->id, 40);
  expect_error<FailedPrecondition>([&] { queue.begin_at(7); }, "there is work already");
  expect_error<InvalidArgument>([] { ClosureQueue({.consistency = {.staleness = -1}}); }, "staleness is -1");
  expect_error<InvalidArgument>([] { ClosureQueue({.consistency = {.staleness = 2}}); }, "came for another kind");
  expect_error<InvalidArgument>([] { ClosureQueue({.consistency = {.backup_workers = 1}}); }, "came for another kind");
}

// Workers that come, go and fail at random: every closure's result is there, once.
TEST(ClosureQueue, ManyWorkersFinishEverything) {
  for (const auto kind :
       {Consistency::Kind::kAsynchronous, Consistency::Kind::kBoundedStaleness, Consistency::Kind::kSynchronous}) {
    Consistency consistency{.kind = kind};
    if (kind == Consistency::Kind::kBoundedStaleness) consistency.staleness = 1;
    if (kind == Consistency::Kind::kSynchronous) consistency.backup_workers = 1;
    ClosureQueue queue({.consistency = consistency, .timeout = seconds(20)});
    std::atomic<bool> over = false;
    std::vector<std::jthread> workers;
    for (int worker = 0; worker < 4; ++worker) {
      workers.emplace_back([&, worker] {
        std::mt19937 random(static_cast<unsigned>(worker));
        queue.add_worker(worker);
        while (!over) {
          const auto closure = queue.take(worker);
          if (!closure) {
            std::this_thread::yield();
          } else if (random() % 8 == 0) {
            queue.lose_worker(worker);
            queue.add_worker(worker);
          } else {
            queue.finish(worker, closure->id, {closure->arguments[0] * 2});
          }
        }
        queue.lose_worker(worker);
      });
    }
    std::vector<std::pair<int, RemoteValue>> values;
    for (int i = 0; i < 300; ++i) {
      for (auto& value : queue.schedule("step", {{torch::tensor(2 * i)}, {torch::tensor(2 * i + 1)}})) {
        values.emplace_back(static_cast<int>(values.size()), RemoteValue(value));
      }
    }
    queue.join();
    over = true;
    for (const auto& [number, value] : values) EXPECT_EQ(value.fetch()[0].item<int>(), 2 * number);
  }
}

}  // namespace
}  // namespace cohort::closure_queue_test
