#include "wings/parameter_server/coordinator/dispatcher.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/deadline.h"
#include "base/fail.h"
#include "base/log.h"
#include "cohort/cluster/cluster_spec.h"
#include "rpc/calls.h"
#include "rpc/status.h"
#include "wings/parameter_server/catalog.h"

namespace cohort {

namespace {

namespace proto = parameter_server;
using std::chrono::milliseconds;

constexpr milliseconds kTick(10);
constexpr milliseconds kLongestWait = std::chrono::minutes(1);

std::string worker_name(int worker) {
  return TaskId{"worker", worker}.to_string();
}

}  // namespace

Dispatcher::Dispatcher(ClosureQueue& queue, DispatcherOptions options)
    : queue_(queue), options_(std::move(options)), ticker_([this](const std::stop_token& stop) { tick(stop); }) {
  queue_.on_change([this] { serve(); });
}

Dispatcher::~Dispatcher() {
  queue_.on_change({});
  ticker_.request_stop();
  ticker_.join();
}

void Dispatcher::handle(const std::string& method, const std::shared_ptr<RpcCall>& call) {
  if (method == "/chief/Join") return join(call);
  if (method == "/chief/Next") return next(call);
  if (method == "/chief/Beat") return beat(call);
  fail_to_find_call("[coordinator] the coordinator", method);
}

int Dispatcher::num_workers() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(workers_.size());
}

void Dispatcher::join(const std::shared_ptr<RpcCall>& call) {
  const auto request = request_of<proto::JoinRequest>(call);
  const int worker = request.worker();
  if (worker < 0) fail<InvalidArgument>("[coordinator] a worker of index ", worker, " came");
  if (request.catalog() != options_.catalog) {
    fail<FailedPrecondition>("[coordinator] ", worker_name(worker), " runs another program than the coordinator: ",
                             difference(options_.catalog, request.catalog()));
  }
  const std::vector<std::string> steps(request.steps().begin(), request.steps().end());
  if (steps != options_.steps) {
    fail<FailedPrecondition>("[coordinator] ", worker_name(worker), " has the steps ", steps, ", the coordinator ",
                             options_.steps);
  }
  uint64_t session = 0;
  {
    const std::lock_guard lock(mutex_);
    require_place(worker, request);
    const auto known = workers_.find(worker);
    const bool same = known != workers_.end() && known->second.alive.is(request.incarnation());
    stop_waiting(worker);
    Liveness alive(options_.heartbeat_timeout);
    alive.enter(request.incarnation(), Clock::now());
    session = ++sessions_;
    workers_.insert_or_assign(worker, Worker{.alive = alive, .process = request.process(), .session = session});
    log().info("[coordinator] {} is {}", worker_name(worker), same ? "here again" : "here");
  }
  queue_.add_worker(worker, session);
  proto::JoinReply reply;
  reply.set_heartbeat_ms(static_cast<uint32_t>(std::max<int64_t>(1, options_.heartbeat_timeout.count() / 3)));
  {
    const std::lock_guard lock(mutex_);
    *reply.mutable_view() = view_;
  }
  answer(call, reply);
}

// Throws if another process is known to be this worker. The caller holds mutex_.
void Dispatcher::require_place(int worker, const proto::JoinRequest& request) {
  const auto known = workers_.find(worker);
  if (known == workers_.end() || known->second.alive.is(request.incarnation())) return;
  Worker& first = known->second;
  const auto now = Clock::now();
  if (first.alive.lost(now)) return;
  first.alive.contest(request.incarnation(), now);
  if (first.alive.resists()) {
    fail<FailedPrecondition>("[coordinator] the place of ", worker_name(worker), " is taken by ", first.process,
                             ", which is alive; this process is ", request.process());
  }
  fail<Unavailable>("[coordinator] the place of ", worker_name(worker), " is taken by ", first.process);
}

void Dispatcher::hear(int worker, uint64_t incarnation) {
  const std::lock_guard lock(mutex_);
  const auto known = workers_.find(worker);
  if (over_) return;
  if (known == workers_.end() || !known->second.alive.is(incarnation)) {
    fail<FailedPrecondition>("[coordinator] ", worker_name(worker), " is not known here (any more); join first");
  }
  known->second.alive.hear(Clock::now());
}

void Dispatcher::note_told(int worker) {
  workers_.erase(worker);
  told_.insert(worker);
}

// Answers the earlier questions of a worker that asks again. The caller holds mutex_.
void Dispatcher::stop_waiting(int worker) {
  waiting_.remove_if([&](const Held& held) {
    if (held.worker != worker) return false;
    held.call->fail(Cancelled(c10::str("[coordinator] ", worker_name(worker), " has asked again")));
    return true;
  });
}

void Dispatcher::next(const std::shared_ptr<RpcCall>& call) {
  proto::NextRequest request;
  FrameReader reader(call->request(), request);
  const int worker = request.worker();
  hear(worker, request.incarnation());
  std::set<int64_t> known(request.holding().begin(), request.holding().end());
  for (const proto::NextRequest::Finished& finished : request.finished()) {
    std::vector<torch::Tensor> result;
    for (int i = 0; i < finished.tensors(); ++i) result.push_back(reader.take());
    if (finished.error() == 0) {
      queue_.finish(worker, finished.closure(), std::move(result), finished.attempt());
      continue;
    }
    try {
      raise_status({.code = finished.error(), .message = finished.message()}, worker_name(worker));
    } catch (const Overtaken&) {
      queue_.leave(worker, finished.closure(), finished.attempt());
    } catch (...) {
      queue_.finish_with(worker, finished.closure(), std::current_exception(), finished.attempt());
    }
  }
  reader.finish();
  if (request.after_loss()) {
    // The earlier question, whose answer was lost, is answered first: it must not get a closure now.
    {
      const std::lock_guard lock(mutex_);
      stop_waiting(worker);
    }
    queue_.keep_only(worker, known);
  }
  const Held held{.worker = worker,
                  .incarnation = request.incarnation(),
                  .call = call,
                  .until = Clock::now() + std::min(milliseconds(request.wait_ms()), kLongestWait)};
  if (!request.want()) return reply_to(held, std::nullopt);
  {
    const std::lock_guard lock(mutex_);
    stop_waiting(worker);
    waiting_.push_back(held);
  }
  serve();
}

// Answers a question. The caller holds mutex_.
void Dispatcher::reply_to(const Held& held, const std::optional<Closure>& closure) {
  proto::NextReply reply;
  reply.set_over(over_);
  if (over_) note_told(held.worker);
  reply.set_found(closure.has_value());
  if (!closure) return answer(held.call, reply);
  reply.set_closure(closure->id);
  reply.set_step(closure->step);
  reply.set_share(closure->share.index);
  reply.set_shares(closure->share.count);
  reply.set_weight(closure->weight);
  reply.set_after(closure->after);
  reply.set_exact(closure->exact);
  reply.set_attempt(closure->attempt);
  held.call->reply(make_frame(reply, closure->arguments));
}

void Dispatcher::serve() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  for (auto held = waiting_.begin(); held != waiting_.end();) {
    if (held->call->cancelled()) {
      held = waiting_.erase(held);
      continue;
    }
    const std::optional<Closure> closure = over_ ? std::nullopt : queue_.take(held->worker, /*sparingly=*/true);
    if (closure || over_ || now >= held->until) {
      reply_to(*held, closure);
      held = waiting_.erase(held);
    } else {
      ++held;
    }
  }
}

void Dispatcher::beat(const std::shared_ptr<RpcCall>& call) {
  const auto request = request_of<proto::BeatRequest>(call);
  hear(request.worker(), request.incarnation());
  const std::lock_guard lock(mutex_);
  beats_.push_back({.worker = request.worker(),
                    .incarnation = request.incarnation(),
                    .call = call,
                    .until = Clock::now() + std::min(milliseconds(request.wait_ms()), kLongestWait),
                    .view = {request.epoch(), request.view()}});
  answer_beats(Clock::now());
}

void Dispatcher::answer_beats(Clock::time_point now) {
  const std::pair<uint64_t, uint64_t> known(view_.epoch(), view_.number());
  for (auto held = beats_.begin(); held != beats_.end();) {
    const bool broken = held->call->cancelled();
    // A worker may know a later view, of another coordinator; what this one has is of no use to it.
    if (!broken && !over_ && held->view >= known && now < held->until) {
      ++held;
      continue;
    }
    const auto worker = workers_.find(held->worker);
    if (broken && worker != workers_.end() && worker->second.alive.is(held->incarnation)) {
      worker->second.alive.suspect();
    }
    proto::BeatReply reply;
    *reply.mutable_view() = view_;
    reply.set_over(over_);
    if (over_) note_told(held->worker);
    answer(held->call, reply);
    held = beats_.erase(held);
  }
}

void Dispatcher::drop_lost(Clock::time_point now) {
  std::vector<std::pair<int, uint64_t>> lost;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [index, worker] : workers_) {
      if (worker.alive.lost(now)) lost.emplace_back(index, worker.session);
    }
    for (const auto& [index, session] : lost) workers_.erase(index);
  }
  // A worker that joins again now has a later session, which the queue keeps.
  for (const auto& [index, session] : lost) {
    log().warn("[coordinator] {} is lost: what it was doing goes to others", worker_name(index));
    queue_.lose_worker(index, session);
  }
}

void Dispatcher::tick(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const auto now = Clock::now();
    drop_lost(now);
    serve();
    std::unique_lock lock(mutex_);
    answer_beats(now);
    ending_.wait_for(lock, stop, kTick, [] { return false; });
  }
}

void Dispatcher::set_view(const proto::View& view) {
  const std::lock_guard lock(mutex_);
  view_ = view;
  answer_beats(Clock::now());
}

void Dispatcher::finish(milliseconds timeout) {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    answer_beats(Clock::now());
  }
  serve();
  const Deadline deadline(timeout);
  const auto all_told = [&] {
    const std::lock_guard lock(mutex_);
    const auto of_cluster =
        std::count_if(told_.begin(), told_.end(), [&](int each) { return each < options_.workers; });
    return workers_.empty() && of_cluster == options_.workers;
  };
  while (!all_told() && !deadline.passed()) std::this_thread::sleep_for(kTick);
}

}  // namespace cohort
