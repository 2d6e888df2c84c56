// SimWorker: a worker of the simulation, which does what WorkerLoop and ServerClient do: it asks the chief for a
// closure, applies it to every home, in the view of the moment and until it is answered, and tells that it has
// finished.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "tests/simulation/chief.h"

namespace cohort::simulation {

constexpr int kFirstWorker = 30;  // the node of worker 0

class SimWorker {
 public:
  using Respond = World::Respond;
  using ChiefNow = std::function<SimChief*()>;

  SimWorker(World& world, SimServer::Fleet& fleet, int index, ChiefNow chief)
      : world_(world), fleet_(fleet), index_(index), chief_(std::move(chief)) {
    start();
  }

  void start() {
    process_ = world_.new_process();
    view_ = {};
    joined_ = false;
    idle();
    beat();
    act();
  }
  void kill() { process_ = 0; }
  bool up() const { return process_ != 0; }
  int node() const { return kFirstWorker + index_; }

 private:
  void later(int64_t delay, const std::function<void()>& action) {
    world_.at(node(), delay, [this, process = process_, action] {
      if (process == process_) action();
    });
  }
  template <typename Handler>
  void ask(const Handler& handler, const World::Done& done) {
    SimChief* const chief = chief_();
    world_.call(
        node(), chief->node(), kServerCall, [chief, handler](const Respond& respond) { handler(*chief, respond); },
        [this, process = process_, done](const Answer& answer) {
          if (process == process_) done(answer);
        },
        Delivery::kOnce);
  }
  void take_view(const Answer& answer) {
    if (!answer.ok) return;
    const proto::View view = std::any_cast<SimChief::Work>(answer.value).view;
    if (std::pair(view.epoch(), view.number()) > std::pair(view_.epoch(), view_.number())) view_ = view;
  }
  void idle() {
    closure_.reset();
    finished_.reset();
    after_loss_ = false;
  }

  // Gives a sign of life. A chief that does not know this worker ends its step, whose updates nobody wants any more.
  void beat() {
    later(30, [this] { beat(); });
    if (!joined_) return;
    ask([this, process = process_](SimChief& chief, const Respond& respond) { chief.beat(index_, process, respond); },
        [this](const Answer& answer) {
          take_view(answer);
          if (answer.refused) joined_ = false;
        });
  }
  // Does the next thing: joins, or asks for a closure.
  void act() {
    if (joined_) return next();
    idle();
    ask([this, process = process_](SimChief& chief, const Respond& respond) { chief.join(index_, process, respond); },
        [this](const Answer& answer) {
          take_view(answer);
          joined_ = answer.ok;
          later(world_.between(1, 40), [this] { act(); });
        });
  }
  void next() {
    ask([this, process = process_, finished = finished_, after_loss = after_loss_](
            SimChief& chief, const Respond& respond) { chief.next(index_, process, finished, after_loss, respond); },
        [this](const Answer& answer) {
          take_view(answer);
          after_loss_ = !answer.ok;
          if (answer.refused) joined_ = false;
          if (answer.ok) finished_.reset();
          if (answer.ok) closure_ = std::any_cast<SimChief::Work>(answer.value).closure;
          if (!closure_) return later(world_.between(1, 40), [this] { act(); });
          left_ = kHomes;
          for (int home = 0; home < kHomes; ++home) push(home);
        });
  }
  // Adds to a home, again and again in the view of the moment.
  void push(int home) {
    if (!joined_) return end_step({});
    const auto again = [this, home] { later(world_.between(10, 40), [this, home] { push(home); }); };
    if (view_.number() == 0) return again();
    SimServer& to = *fleet_[static_cast<std::size_t>(view_.homes(home).primary())];
    const Update update{.epoch = view_.epoch(), .view = view_.number(), .home = home, .closure = closure_->id};
    world_.call(
        node(), to.node(), 2 * kServerCall, [&to, update](const Respond& respond) { to.push(update, respond); },
        [this, again, process = process_](const Answer& answer) {
          if (process != process_) return;
          if (!answer.ok) return again();
          end_step(SimChief::Finished{.closure = closure_->id, .attempt = closure_->attempt});
        });
  }
  // Notes that the step has ended at one home.
  void end_step(const std::optional<SimChief::Finished>& finished) {
    if (--left_ > 0) return;
    closure_.reset();
    finished_ = finished;
    act();
  }

  World& world_;
  SimServer::Fleet& fleet_;
  const int index_;
  const ChiefNow chief_;
  uint64_t process_ = 0;
  bool joined_ = false;
  bool after_loss_ = false;  // the answer to the last question was lost
  std::optional<Closure> closure_;
  std::optional<SimChief::Finished> finished_;
  int left_ = 0;  // number of homes at which the step has not ended
  proto::View view_;
};

}  // namespace cohort::simulation
