// Conversations with the coordinator of a parameter-server run: workers, in several processes each, and strangers join,
// ask for work, report what they were given or anything else, and give signs of life, while the program schedules work,
// servers come back and checkpoints are written. Every call is answered once, at the latest when the run is over; no
// two answers give out the same attempt; a value is one that a worker reported which had the closure. Where workers are
// soon taken for lost, a worker that does as it should does all the work in the end.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "cohort/error.h"
#include "tests/fuzz/calls.h"
#include "tests/fuzz/entry.h"
#include "wings/parameter_server/coordinator/dispatcher.h"

namespace cohort::fuzz::dispatcher_fuzzer {
namespace {

namespace proto = cohort::parameter_server;
using std::chrono::milliseconds;

constexpr milliseconds kSoon(20);
constexpr int kHonest = 9;  // the worker that does the rest

Consistency consistency_of(int kind) {
  if (kind == 0) return {};
  if (kind == 1) return {.kind = Consistency::Kind::kBoundedStaleness, .staleness = 1};
  return {.kind = Consistency::Kind::kSynchronous, .backup_workers = 1};
}

class Conversation {
 public:
  explicit Conversation(fuzz::Numbers numbers)
      : numbers_(numbers),
        queue_({.consistency = consistency_of(numbers_.below(3)),
                .capacity = 8,
                .log_closures = 6,
                .timeout = milliseconds(0)}),
        soon_lost_(numbers_.below(8) == 0),
        dispatcher_(queue_, {.catalog = "c",
                             .steps = {"s"},
                             .workers = 2,
                             .heartbeat_timeout = soon_lost_ ? kSoon : milliseconds(std::chrono::hours(1))}) {}

  void run() {
    while (!numbers_.empty()) step();
    if (soon_lost_) do_the_rest();
    dispatcher_.finish(milliseconds(0));
    read_answers();
    for (const auto& call : calls_) {
      fuzz::require(call->answers() == 1 || (call->cancelled() && call->answers() == 0),
                    "a call was not answered once");
    }
    check_values();
  }

 private:
  using Given = std::pair<int, int64_t>;  // a worker and a closure

  void step() {
    switch (numbers_.below(12)) {
      case 0:
      case 1:
        return schedule();
      case 2:
        return (void)queue_.replay(numbers_.any());
      case 3:
        return queue_.forget_before(std::min(numbers_.any(), queue_.done_below()));
      case 4:
        return join();
      case 5:
        return beat();
      case 6:
        return anything();
      case 7:
        return set_view();
      case 8:
        if (!calls_.empty())
          calls_[static_cast<std::size_t>(numbers_.below(static_cast<int>(calls_.size())))]->cancel();
        return;
      case 9:
        return soon_lost_ ? std::this_thread::sleep_for(milliseconds(numbers_.below(30))) : join();
      default:
        return next();
    }
  }

  // -- The program.

  void schedule() {
    const int64_t first = queue_.next_id();
    std::vector<std::vector<torch::Tensor>> shares(1 + static_cast<std::size_t>(numbers_.below(3)));
    try {
      auto values = queue_.schedule("s", std::move(shares));
      for (std::size_t i = 0; i < values.size(); ++i) values_.emplace_back(first + static_cast<int64_t>(i), values[i]);
    } catch (const Error&) {  // the queue is full, or an earlier closure has failed
    }
  }
  void set_view() {
    proto::View view;
    view.set_epoch(static_cast<uint64_t>(numbers_.below(3)));
    view.set_number(++views_);
    dispatcher_.set_view(view);
  }
  // What is ready was reported by a worker that was given it.
  void check_values() {
    for (const auto& [closure, value] : values_) {
      if (!value->ready()) continue;
      try {
        const std::vector<torch::Tensor> tensors = value->fetch(milliseconds(0));
        if (tensors.size() != 1 || other_tensors_) continue;
        const auto reported = tensors[0].accessor<int64_t, 1>();
        fuzz::require(reported[0] == closure, "the value of another closure");
        fuzz::require(given_.contains({static_cast<int>(reported[1]), closure}), "the value of another worker");
      } catch (const Error&) {
      }
    }
  }

  // -- The workers.

  // Calls, and looks at what was answered until now.
  void call(const std::string& method, const Frame& frame) {
    calls_.push_back(std::make_shared<fuzz::Call>(frame));
    try {
      dispatcher_.handle(method, calls_.back());
    } catch (const Error& error) {
      calls_.back()->fail(error);
    }
    read_answers();
  }
  void read_answers() {
    for (const auto& [worker, call] : asked_) {
      const auto answer = call->take_reply();
      if (!answer) continue;
      proto::NextReply reply;
      const FrameReader reader(*answer, reply);
      if (!reply.found()) continue;
      fuzz::require(reply.closure() >= 0 && reply.closure() < queue_.next_id(), "a closure that was not scheduled");
      fuzz::require(attempts_.insert(reply.attempt()).second, "an attempt was given twice");
      given_.emplace(worker, reply.closure());
      had_.push_back({.worker = worker, .closure = reply.closure(), .attempt = reply.attempt()});
    }
  }
  int any_worker() {
    constexpr int kOdd = 16;
    return numbers_.below(kOdd) == 1 ? static_cast<int>(numbers_.any()) : numbers_.below(3);
  }
  uint64_t any_process() { return static_cast<uint64_t>(1 + numbers_.below(2)); }

  void join() {
    proto::JoinRequest request;
    request.set_worker(any_worker());
    request.set_incarnation(any_process());
    request.set_catalog(numbers_.below(16) == 1 ? std::string(numbers_.count(20), 'd') : "c");
    const std::size_t steps = numbers_.below(16) == 1 ? numbers_.count(16) : 1;
    for (std::size_t i = 0; i < steps; ++i) request.add_steps("s");
    call("/chief/Join", make_frame(request));
  }
  void beat() {
    proto::BeatRequest request;
    request.set_worker(any_worker());
    request.set_incarnation(any_process());
    request.set_view(static_cast<uint64_t>(numbers_.any()));
    request.set_wait_ms(static_cast<uint32_t>(numbers_.any()));
    call("/chief/Beat", make_frame(request));
  }
  void next() {
    proto::NextRequest request;
    request.set_worker(any_worker());
    request.set_incarnation(any_process());
    request.set_want(numbers_.below(4) != 0);
    request.set_wait_ms(numbers_.below(2) == 0 ? 0 : static_cast<uint32_t>(numbers_.any()));
    request.set_after_loss(numbers_.below(4) == 0);
    for (std::size_t i = numbers_.count(); i > 0; --i) request.add_holding(numbers_.any());
    std::vector<torch::Tensor> tensors;
    for (std::size_t i = numbers_.count(8); i > 0; --i) add_report(request, tensors);
    ask(request, tensors);
  }
  // Adds what the worker had, as it was or changed.
  void add_report(proto::NextRequest& request, std::vector<torch::Tensor>& tensors) {
    constexpr int kOdd = 8;
    proto::NextRequest::Finished& report = *request.add_finished();
    if (!had_.empty()) {
      const Had& had = had_[static_cast<std::size_t>(numbers_.below(static_cast<int>(had_.size())))];
      report.set_closure(had.closure);
      report.set_attempt(had.attempt);
      if (numbers_.below(kOdd) != 1) request.set_worker(had.worker);
    }
    if (numbers_.below(kOdd) == 1) report.set_closure(numbers_.any());
    if (numbers_.below(kOdd) == 1) report.set_attempt(static_cast<uint64_t>(numbers_.any()));
    if (numbers_.below(kOdd) == 1) report.set_error(static_cast<int>(numbers_.any()));
    report.set_message(numbers_.below(kOdd) == 1 ? std::string(numbers_.count(16), '[') : "it failed");
    report.set_tensors(1);
    if (numbers_.below(4 * kOdd) == 1) {
      report.set_tensors(static_cast<int>(numbers_.any()));
      other_tensors_ = true;
    }
    tensors.push_back(torch::tensor({report.closure(), int64_t{request.worker()}}));
  }
  void ask(const proto::NextRequest& request, std::vector<torch::Tensor>& tensors) {
    for (const torch::Tensor& each : tensors) each.accessor<int64_t, 1>()[1] = request.worker();
    call("/chief/Next", make_frame(request, tensors));
    asked_.emplace_back(request.worker(), calls_.back());
    read_answers();
  }
  void anything() {
    static const char* const methods[] = {"/chief/Join", "/chief/Next", "/chief/Beat", "/chief/Other"};
    const char* const method = methods[numbers_.below(4)];
    const std::string bytes = fuzz::bytes_of(numbers_);
    other_tensors_ = true;
    call(method, numbers_.below(2) == 0 ? fuzz::frame_of(bytes) : fuzz::framed(bytes, numbers_.count(8)));
  }

  // Does all work as a new worker. The others are silent, and soon lost.
  void do_the_rest() {
    const Deadline deadline(std::chrono::seconds(60));
    const auto is_done = [&] {
      try {
        return queue_.done();
      } catch (const Error&) {  // of an earlier closure
        return false;
      }
    };
    proto::JoinRequest join;
    join.set_worker(kHonest);
    join.set_incarnation(1);
    join.set_catalog("c");
    join.add_steps("s");
    bool joined = false;
    for (std::size_t had = had_.size(); !is_done(); std::this_thread::sleep_for(milliseconds(1))) {
      fuzz::require(!deadline.passed(), "the work does not come to an end");
      if (!joined) call("/chief/Join", make_frame(join));
      proto::NextRequest request;
      request.set_worker(kHonest);
      request.set_incarnation(1);
      request.set_want(true);
      std::vector<torch::Tensor> tensors;
      for (; had < had_.size(); ++had) {
        if (had_[had].worker != kHonest) continue;
        request.add_finished()->set_closure(had_[had].closure);
        request.mutable_finished()->rbegin()->set_attempt(had_[had].attempt);
        request.mutable_finished()->rbegin()->set_tensors(1);
        tensors.push_back(torch::tensor({had_[had].closure, int64_t{kHonest}}));
      }
      ask(request, tensors);
      joined = !calls_.back()->failed();
    }
  }

  struct Had {
    int worker = 0;
    int64_t closure = 0;
    uint64_t attempt = 0;
  };

  fuzz::Numbers numbers_;
  ClosureQueue queue_;
  const bool soon_lost_;
  Dispatcher dispatcher_;
  uint64_t views_ = 0;
  std::vector<std::pair<int64_t, std::shared_ptr<RemoteValueState>>> values_;
  std::vector<std::shared_ptr<fuzz::Call>> calls_;
  std::vector<std::pair<int, std::shared_ptr<fuzz::Call>>> asked_;  // for work, by this worker
  std::vector<Had> had_;
  std::set<Given> given_;
  std::set<uint64_t> attempts_;
  bool other_tensors_ = false;  // a result may be what was sent for another one
};

}  // namespace

COHORT_FUZZER_ENTRY(dispatcher)(const uint8_t* data, std::size_t size) {
  Conversation(Numbers(data, size)).run();
  return 0;
}

}  // namespace cohort::fuzz::dispatcher_fuzzer
