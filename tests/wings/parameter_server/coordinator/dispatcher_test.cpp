#include "wings/parameter_server/coordinator/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <functional>
#include <thread>

#include "cluster/free_port.h"
#include "cohort/cluster/remote_value.h"
#include "cohort/error.h"
#include "rpc/calls.h"
#include "tests/support/errors.h"
#include "tests/support/log_watch.h"
#include "tests/wings/parameter_server/fleet.h"
#include "wings/parameter_server/worker/worker.h"

namespace cohort::dispatcher_test {
namespace {

namespace proto = parameter_server;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::expect_error;

// A coordinator's side, which can be lost and started again at the same address. The heartbeats are for tests in which
// no worker is silent: a busy machine may stop for seconds.
class Chief {
 public:
  explicit Chief(const std::string& address, const Consistency& consistency = {},
                 milliseconds heartbeat_timeout = seconds(20))
      : queue({.consistency = consistency, .timeout = seconds(20)}),
        dispatcher(queue, {.catalog = "c", .steps = {"step"}, .heartbeat_timeout = heartbeat_timeout}),
        server(address, {.threads = 4}, [this](const std::string& method, const std::shared_ptr<RpcCall>& call) {
          dispatcher.handle(method, call);
          if (method == "/chief/Beat") ++beats;
        }) {}

  std::vector<RemoteValue> schedule(int count) {
    std::vector<RemoteValue> values;
    for (int i = 0; i < count; ++i) {
      values.emplace_back(queue.schedule("step", {{torch::tensor(static_cast<double>(i))}}).front());
    }
    return values;
  }
  void await_workers(int count) const {
    for (int i = 0; i < 4000 && dispatcher.num_workers() != count; ++i) std::this_thread::sleep_for(milliseconds(5));
    EXPECT_EQ(dispatcher.num_workers(), count);
  }

  ClosureQueue queue;
  Dispatcher dispatcher;
  std::atomic<int> beats = 0;  // that have come, and may wait for their answer
  RpcServer server;
};

// What a worker of the Chief's program asks when it comes.
proto::JoinRequest join_of(int worker) {
  proto::JoinRequest join;
  join.set_worker(worker);
  join.set_incarnation(1);
  join.set_catalog("c");
  join.add_steps("step");
  return join;
}

class Dispatching : public ::testing::Test {
 protected:
  using Run = WorkerLoop::Run;

  void start_worker(int index, const Run& run, std::vector<std::string> steps = {"step"}) {
    start_worker(
        index, [run](ServerClient&, const Closure& closure) { return run(closure); }, std::move(steps));
  }
  using RunWithServers = std::function<std::vector<torch::Tensor>(ServerClient& servers, const Closure& closure)>;
  void start_worker(int index, RunWithServers run, std::vector<std::string> steps = {"step"}) {
    threads_.emplace_back([this, index, run = std::move(run), steps = std::move(steps)] {
      const auto servers = fleet_.client();
      try {
        WorkerLoop(*servers, [&](const Closure& closure) { return run(*servers, closure); },
                   {.index = index,
                    .coordinator = address_,
                    .security = {},
                    .catalog = "c",
                    .steps = steps,
                    .coordinator_timeout = seconds(10),
                    .report_interval = seconds(5)})
            .run();
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex_);
        ends_.emplace_back(error.what());
      }
    });
  }

  static std::vector<torch::Tensor> twice(const Closure& closure) { return {closure.arguments[0] * 2}; }

  std::string address_ = "127.0.0.1:" + std::to_string(free_port("127.0.0.1"));
  static std::shared_ptr<Catalog> counter() {
    auto catalog = std::make_shared<Catalog>(1);
    catalog->declare({.name = "count", .shape = {1}, .dtype = torch::kLong});
    return catalog;
  }

  std::shared_ptr<Catalog> catalog_ = counter();
  testing::Fleet fleet_{catalog_};
  std::mutex mutex_;
  std::vector<std::string> ends_;
  std::vector<std::jthread> threads_;
};

TEST_F(Dispatching, WorkersDoTheWorkAndResultsComeBack) {
  for (const auto kind : {Consistency::Kind::kAsynchronous, Consistency::Kind::kSynchronous}) {
    threads_.clear();
    Chief chief(address_, {.kind = kind});
    for (int worker = 0; worker < 3; ++worker) start_worker(worker, twice);
    const auto values = chief.schedule(500);
    for (int i = 0; i < 500; ++i) {
      EXPECT_EQ(values[static_cast<std::size_t>(i)].fetch()[0].item<double>(), 2.0 * i);
    }
    chief.queue.join();
    chief.await_workers(3);
    chief.dispatcher.finish();
    threads_.clear();
    EXPECT_THAT(ends_, ::testing::IsEmpty());
  }
}

// A step waits for servers that refuse its updates, because its coordinator is gone and another one has begun. The
// worker must not wait with it: the next coordinator's views reach only workers that have joined.
TEST_F(Dispatching, AWorkerLeavesTheStepOfACoordinatorThatIsGone) {
  auto first = std::make_unique<Chief>(address_);
  proto::View view;
  view.set_number(1);
  view.set_epoch(1);
  proto::View::Home& home = *view.add_homes();
  home.set_backup(-1);
  home.set_joining(-1);
  first->dispatcher.set_view(view);
  std::atomic<int> begun = 0;
  start_worker(0, [&](ServerClient& servers, const Closure& closure) {
    if (++begun == 1) {
      std::vector<Push> pushes = {
          {.kind = proto::PushRequest::ADD, .id = {.closure = closure.id}, .value = torch::ones({1}, torch::kLong)}};
      servers.push(pushes);
    }
    return twice(closure);
  });
  const auto in_vain = first->schedule(1);
  for (int i = 0; i < 4000 && begun == 0; ++i) std::this_thread::sleep_for(milliseconds(5));
  ASSERT_EQ(begun, 1);
  first.reset();
  Chief second(address_);
  second.await_workers(1);
  EXPECT_EQ(second.schedule(2)[1].fetch()[0].item<double>(), 2.0);
  EXPECT_EQ(begun, 3);
  second.dispatcher.finish();
  threads_.clear();
  EXPECT_THAT(ends_, ::testing::IsEmpty());
}

TEST_F(Dispatching, AStepsErrorReachesTheUserAndTheWorkerGoesOn) {
  Chief chief(address_);
  start_worker(0, [](const Closure& closure) -> std::vector<torch::Tensor> {
    if (closure.id == 2) throw NotFound("[test] no such thing");
    if (closure.id == 5) return {torch::zeros({1}, torch::kComplexFloat)};
    return {};
  });
  const auto values = chief.schedule(5);
  expect_error<NotFound>([&] { chief.queue.join(); }, "[test] no such thing");
  expect_error<NotFound>([&] { (void)values[2].fetch(); }, "[test] no such thing");
  const int64_t id = chief.queue.next_id();
  EXPECT_EQ(id, 5);
  (void)chief.schedule(1);
  expect_error<InvalidArgument>([&] { chief.queue.join(); }, "values of ComplexFloat cannot be sent");
  (void)chief.schedule(3);
  chief.queue.join();
  chief.dispatcher.finish();
}

TEST_F(Dispatching, ASecondProcessIsRefusedWhileTheFirstIsAlive) {
  Chief chief(address_, {}, seconds(2));
  start_worker(0, twice);
  chief.await_workers(1);
  RpcClient second("the coordinator", address_);
  proto::JoinRequest join = join_of(0);
  join.set_process("the second one");
  const auto asked = [&]() -> std::string {
    for (int i = 0; i < 500; ++i) {
      try {
        (void)second.call("/chief/Join", make_frame(join), seconds(20)).get();
        return "it is let in";
      } catch (const Unavailable&) {
        std::this_thread::sleep_for(milliseconds(20));
      } catch (const FailedPrecondition& error) {
        return error.what();
      }
    }
    return "it waits";
  }();
  EXPECT_THAT(
      asked,
      ::testing::MatchesRegex(
          ".coordinator. the place of worker 0 is taken by pid .* which is alive; this process is the second one"));
  const auto values = chief.schedule(5);
  EXPECT_EQ(values[4].fetch()[0].item<double>(), 8.0);
  chief.queue.join();
  chief.dispatcher.finish();
}

// The worker joins again just when it is said to be lost, before what it held goes to others.
TEST_F(Dispatching, AWorkerThatJoinsWhileItIsTakenForLostGetsWork) {
  RpcClient worker("the coordinator", address_);
  const proto::JoinRequest join = join_of(0);
  const auto join_now = [&] { (void)worker.call("/chief/Join", make_frame(join), seconds(20)).get(); };
  std::atomic<bool> joined_again = false;
  const testing::LogWatch watch([&](const std::string& text) {
    if (text.find("worker 0 is lost") == std::string::npos || joined_again) return;
    join_now();
    joined_again = true;
  });
  Chief chief(address_, {}, seconds(2));
  join_now();
  for (int i = 0; i < 2000 && !joined_again; ++i) std::this_thread::sleep_for(milliseconds(5));
  ASSERT_TRUE(joined_again);
  (void)chief.schedule(1);
  proto::NextRequest next;
  next.set_worker(0);
  next.set_incarnation(1);
  next.set_want(true);
  next.set_wait_ms(1000);
  proto::NextReply reply;
  const Frame answered = worker.call("/chief/Next", make_frame(next), seconds(10)).get();
  FrameReader reader(answered, reply);
  EXPECT_TRUE(reply.found());
}

TEST_F(Dispatching, AQuestionIsAnsweredWhenItsWorkerAsksAgain) {
  Chief chief(address_);
  RpcClient worker("the coordinator", address_);
  proto::JoinRequest join;
  join.set_catalog("c");
  join.add_steps("step");
  (void)worker.call("/chief/Join", make_frame(join), seconds(20)).get();
  proto::NextRequest next;
  next.set_want(true);
  next.set_wait_ms(30'000);
  auto first = worker.call("/chief/Next", make_frame(next), seconds(30));
  next.set_wait_ms(0);
  do {
    (void)worker.call("/chief/Next", make_frame(next), seconds(30)).get();
  } while (first.wait_for(milliseconds(10)) != std::future_status::ready);
  expect_error<Cancelled>([&] { (void)first.get(); }, "worker 0 has asked again");
}

// Its view is of a coordinator that took this one's place for a while.
TEST_F(Dispatching, AWorkerWithALaterViewIsToldNothingUntilThereIsALaterOne) {
  Chief chief(address_);
  RpcClient worker("the coordinator", address_);
  (void)worker.call("/chief/Join", make_frame(join_of(0)), seconds(20)).get();
  proto::View view;
  view.set_epoch(1);
  view.set_number(7);
  chief.dispatcher.set_view(view);
  proto::BeatRequest beat;
  beat.set_worker(0);
  beat.set_incarnation(1);
  beat.set_epoch(2);
  beat.set_view(3);
  beat.set_wait_ms(60'000);
  auto answer = worker.call("/chief/Beat", make_frame(beat), seconds(60));
  EXPECT_EQ(answer.wait_for(milliseconds(200)), std::future_status::timeout);
  view.set_epoch(3);
  chief.dispatcher.set_view(view);
  EXPECT_EQ(message_in<proto::BeatReply>(answer.get()).view().epoch(), 3);
}

// A process that joins, takes work and is never heard of again; and one whose connection breaks.
TEST_F(Dispatching, WhatALostWorkerHadIsDoneByAnother) {
  for (const bool connection_breaks : {false, true}) {
    threads_.clear();
    Chief chief(address_, {}, connection_breaks ? seconds(60) : milliseconds(600));
    auto lost = std::make_unique<RpcClient>("the coordinator", address_);
    (void)lost->call("/chief/Join", make_frame(join_of(7)), seconds(20)).get();
    const auto values = chief.schedule(1);
    proto::NextRequest next;
    next.set_worker(7);
    next.set_incarnation(1);
    next.set_want(true);
    proto::NextReply reply;
    const auto answer = lost->call("/chief/Next", make_frame(next), seconds(20)).get();
    FrameReader reader(answer, reply);
    EXPECT_TRUE(reply.found());
    const auto begin = std::chrono::steady_clock::now();
    if (connection_breaks) {
      proto::BeatRequest beat;
      beat.set_worker(7);
      beat.set_incarnation(1);
      beat.set_wait_ms(60'000);
      (void)lost->call("/chief/Beat", make_frame(beat), seconds(60));
      for (int i = 0; i < 4000 && chief.beats == 0; ++i) std::this_thread::sleep_for(milliseconds(5));
      lost.reset();
    }
    start_worker(0, twice);
    (void)values[0].fetch();
    if (connection_breaks) {
      EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30)) << "at once";
    } else {
      next.set_want(false);
      expect_error<FailedPrecondition>([&] { (void)lost->call("/chief/Next", make_frame(next), seconds(20)).get(); },
                                       "worker 7 is not known here (any more); join first");
    }
    chief.dispatcher.finish();
  }
}

TEST_F(Dispatching, WorkersWaitForACoordinatorThatComesBack) {
  start_worker(0, twice);  // before there is one
  std::this_thread::sleep_for(milliseconds(100));
  for (int run = 0; run < 3; ++run) {
    Chief chief(address_);
    const auto values = chief.schedule(20);
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(values[static_cast<std::size_t>(i)].fetch()[0].item<double>(), 2.0 * i);
    }
    (void)chief.schedule(5);  // under way when the coordinator is lost
    if (run == 2) chief.dispatcher.finish();
  }
  threads_.clear();
  EXPECT_THAT(ends_, ::testing::IsEmpty());
}

TEST_F(Dispatching, AnotherProgramIsRefused) {
  Chief chief(address_);
  start_worker(0, twice, {"another step"});
  threads_.clear();
  ASSERT_EQ(ends_.size(), 1U);
  EXPECT_THAT(ends_[0], ::testing::HasSubstr("worker 0 has the steps another step, the coordinator step"));
  RpcClient client("the coordinator", address_);
  proto::JoinRequest join;
  join.set_catalog("d");
  expect_error<FailedPrecondition>([&] { (void)client.call("/chief/Join", make_frame(join), seconds(20)).get(); },
                                   "worker 0 runs another program than the coordinator: \"c\" here, \"d\" there");
  join.set_worker(-1);
  expect_error<InvalidArgument>([&] { (void)client.call("/chief/Join", make_frame(join), seconds(20)).get(); },
                                "a worker of index -1 came");
  expect_error<Unimplemented>([&] { (void)client.call("/chief/Nothing", make_frame(join), seconds(20)).get(); },
                              "the coordinator has no call /chief/Nothing");
}

}  // namespace
}  // namespace cohort::dispatcher_test
