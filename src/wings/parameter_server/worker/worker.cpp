#include "wings/parameter_server/worker/worker.h"

#include <algorithm>

#include "base/draw.h"
#include "base/fail.h"
#include "cluster/own_host.h"
#include "cohort/cluster/cluster_spec.h"
#include "rpc/calls.h"
#include "rpc/status.h"

namespace cohort {

namespace {

namespace proto = parameter_server;
using std::chrono::milliseconds;

constexpr milliseconds kAgain(100);      // between two attempts to reach the coordinator
constexpr milliseconds kHold(1000);      // the time that the coordinator may hold a question
constexpr milliseconds kAnswer(10'000);  // the time that an answer may take beyond that

}  // namespace

WorkerLoop::WorkerLoop(ServerClient& servers, Run run, WorkerLoopOptions options)
    : servers_(servers),
      run_(std::move(run)),
      options_(std::move(options)),
      incarnation_(draw_number()),
      coordinator_("the coordinator", options_.coordinator, options_.security),
      heart_("the coordinator", options_.coordinator, options_.security) {}

WorkerLoop::~WorkerLoop() {
  beater_.request_stop();
  heart_.close();
  coordinator_.cancel_calls();
}

void WorkerLoop::run() {
  join();
  beater_ = std::jthread([this](const std::stop_token& stop) { beat(stop); });
  while (!over_) {
    try {
      round();
      coordinator_is_there();
    } catch (const FailedPrecondition&) {
      // The coordinator was restarted, or took this worker for lost. Others do the closures that are here.
      asked_.reset();
      have_.clear();
      results_.clear();
      after_loss_ = false;
      join();
    } catch (const Error& error) {
      if (!may_pass(error)) throw;
      wait_for_coordinator(error);
    }
  }
}

void WorkerLoop::coordinator_is_there() {
  away_.reset();
}

void WorkerLoop::wait_for_coordinator(const std::exception& error) {
  if (over_) return;
  if (asked_) put_back(std::move(asked_->results));
  asked_.reset();
  after_loss_ = true;
  const auto now = std::chrono::steady_clock::now();
  if (!away_) {
    away_.emplace(WaitOptions{.who = "[parameter server] " + TaskId{"worker", options_.index}.to_string(),
                              .limit = options_.coordinator_timeout,
                              .report_interval = options_.report_interval},
                  now);
  }
  away_->go_on<Unavailable>(c10::str("the coordinator: ", error.what()), now);
  std::this_thread::sleep_for(kAgain);
}

void WorkerLoop::join() {
  proto::JoinRequest request;
  request.set_worker(options_.index);
  request.set_incarnation(incarnation_);
  request.set_process(this_process());
  request.set_catalog(options_.catalog);
  for (const std::string& step : options_.steps) request.add_steps(step);
  while (!over_) {
    try {
      unknown_ = false;
      const auto reply = cohort::ask<proto::JoinReply>(coordinator_, "/chief/Join", request, kAnswer);
      heartbeat_ = milliseconds(std::max<uint32_t>(1, reply.heartbeat_ms()));
      servers_.set_view(reply.view());
      return coordinator_is_there();
    } catch (const Error& error) {
      if (!may_pass(error)) throw;
      wait_for_coordinator(error);
    }
  }
}

void WorkerLoop::beat(const std::stop_token& stop) {
  proto::BeatRequest request;
  request.set_worker(options_.index);
  request.set_incarnation(incarnation_);
  while (!stop.stop_requested() && !over_) {
    const proto::View view = servers_.view();
    request.set_view(view.number());
    request.set_epoch(view.epoch());
    const milliseconds heartbeat = heartbeat_;
    request.set_wait_ms(static_cast<uint32_t>(heartbeat.count()));
    try {
      const auto reply = message_in<proto::BeatReply>(heart_.call("/chief/Beat", make_frame(request), 2 * heartbeat));
      servers_.set_view(reply.view());
      if (reply.over()) {
        over_ = true;
        coordinator_.cancel_calls();
        servers_.close("the run is over");
      }
    } catch (const FailedPrecondition&) {
      // The coordinator was restarted, or took this worker for lost. The servers may refuse the updates of the step
      // that runs here for ever, so it ends now.
      unknown_ = true;
      servers_.give_up("the coordinator does not know this worker any more");
      std::this_thread::sleep_for(kAgain);
    } catch (const std::exception&) {
      // The other thread notices the failure as well, and decides.
      std::this_thread::sleep_for(kAgain);
    }
  }
}

WorkerLoop::Question WorkerLoop::ask(bool want) {
  Question question;
  question.results = std::exchange(results_, {});
  proto::NextRequest request;
  request.set_worker(options_.index);
  request.set_incarnation(incarnation_);
  request.set_want(want);
  request.set_wait_ms(want ? static_cast<uint32_t>(kHold.count()) : 0);
  request.set_after_loss(std::exchange(after_loss_, false));
  for (const Closure& closure : have_) request.add_holding(closure.id);
  std::vector<torch::Tensor> tensors;
  for (const Result& result : question.results) {
    *request.add_finished() = result.finished;
    tensors.insert(tensors.end(), result.tensors.begin(), result.tensors.end());
  }
  question.answer = coordinator_.call("/chief/Next", make_frame(request, tensors), kHold + kAnswer);
  return question;
}

void WorkerLoop::put_back(std::vector<Result> results) {
  results_.insert(results_.begin(), std::make_move_iterator(results.begin()), std::make_move_iterator(results.end()));
}

void WorkerLoop::take(Question question) {
  try {
    proto::NextReply reply;
    FrameReader reader(question.answer.get(), reply);
    if (reply.over()) over_ = true;
    if (!reply.found()) return;
    Closure closure{.id = reply.closure(),
                    .step = reply.step(),
                    .arguments = {},
                    .share = {.index = reply.share(), .count = std::max<int64_t>(1, reply.shares())},
                    .weight = reply.weight(),
                    .exact = reply.exact(),
                    .after = reply.after(),
                    .attempt = reply.attempt()};
    while (reader.left() > 0) closure.arguments.push_back(reader.take());
    have_.push_back(std::move(closure));
  } catch (...) {
    put_back(std::move(question.results));
    throw;
  }
}

void WorkerLoop::round() {
  if (!asked_) asked_ = ask(/*want=*/true);
  const auto take_asked = [&] { take(std::move(*std::exchange(asked_, std::nullopt))); };
  if (have_.empty()) return take_asked();
  execute(have_.front());
  have_.pop_front();
  const bool more = asked_->answer.wait_for(milliseconds(0)) == std::future_status::ready;
  if (more) return take_asked();  // the results travel with the next question
  take(ask(/*want=*/false));
}

void WorkerLoop::execute(const Closure& closure) {
  Result result;
  result.finished.set_closure(closure.id);
  result.finished.set_attempt(closure.attempt);
  try {
    result.tensors = run_(closure);
    for (torch::Tensor& tensor : result.tensors) tensor = tensor.detach().cpu().contiguous();
    (void)make_frame(rpc::Empty(), result.tensors);  // throws if they cannot be sent
    result.finished.set_tensors(static_cast<int32_t>(result.tensors.size()));
  } catch (const std::exception& error) {
    // Nobody waits for the result. If the coordinator has got to know this worker meanwhile it gives the closure to
    // somebody again.
    if (unknown_) fail<FailedPrecondition>("[parameter server] a step was given up: ", error.what());
    const CallStatus status = status_of(error);
    result.tensors.clear();
    result.finished.set_error(status.code);
    result.finished.set_message(status.message);
  }
  results_.push_back(std::move(result));
}

}  // namespace cohort
