// SimMember: a process of a worker of the multi-worker simulation; that of worker 0 has the CoordinationState, too. It
// does what Membership and CoordinationClient do, in their order, and trains: it agrees on the step to begin with, and
// meets the others at a barrier after each step.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cluster/beat_plan.h"
#include "cluster/coordination/state.h"
#include "tests/simulation/world.h"

namespace cohort::simulation {

constexpr int kMembers = 3;
constexpr std::chrono::milliseconds kHeartbeat{5000};

inline CoordinationState::Time now_in(const World& world) {
  return CoordinationState::Time(std::chrono::milliseconds(world.now()));
}

// The coordination leader's end, which listens while its process is there.
class SimLeader {
 public:
  using OnFailure = std::function<void(const SimLeader&)>;

  SimLeader(World& world, const ClusterSpec& cluster, uint64_t process, OnFailure on_failure)
      : world_(world), process_(process), state_(cluster, kHeartbeat), on_failure_(std::move(on_failure)) {
    tick();
  }

  uint64_t process() const { return process_; }
  CoordinationState& state() { return state_; }
  const CoordinationState& state() const { return state_; }
  void close() { open_ = false; }
  // Returns a reply that answers the call, and finds it wrong to be called twice.
  CoordinationState::Reply reply_to(const World::Respond& respond) {
    return [this, respond, times = std::make_shared<int>(0)](const CoordinationAnswer& answer) {
      if (++*times > 1) world_.violate("a call was answered twice");
      respond({.ok = true, .value = answer});
    };
  }
  // Notes the members that the group consists of, of which everybody has to hear the same.
  void require_same(const std::vector<std::string>& infos) {
    if (infos_.empty()) formed_at_ = world_.now();
    if (infos_.empty()) infos_ = infos;
    if (infos != infos_) world_.violate("the members of a group were told of different ones");
  }
  std::optional<int64_t> formed_at() const { return formed_at_; }
  // Notes that a member comes to a barrier.
  void arrive(int step, int member) { arrived_[step].insert(member); }
  void note_left(uint64_t process) { left_.insert(std::to_string(process)); }
  // Requires that every member has arrived or left before anybody passes the barrier. A member counts as left even if
  // it has not yet heard that the group is complete.
  void require_all(int step) {
    for (int member = 0; member < kMembers; ++member) {
      if (arrived_[step].contains(member) || left_.contains(infos_.at(static_cast<std::size_t>(member)))) continue;
      world_.violate("a member went on from step ", step, " without worker ", member);
    }
  }

 private:
  void tick() {
    if (!open_) return;
    world_.at(/*node=*/0, 20, [this] { tick(); });
    state_.tick(now_in(world_));
    if (state_.failure() && !std::exchange(failed_, true)) on_failure_(*this);
  }

  World& world_;
  const uint64_t process_;
  CoordinationState state_;
  const OnFailure on_failure_;
  bool open_ = true;
  bool failed_ = false;
  std::vector<std::string> infos_;
  std::optional<int64_t> formed_at_;
  std::map<int, std::set<int>> arrived_;
  std::set<std::string> left_;  // processes, as infos_ has them
};

// What all processes share: the leader's address and the chief's checkpoint.
struct Shared {
  ClusterSpec cluster;
  SimLeader* listening = nullptr;
  std::vector<std::unique_ptr<SimLeader>> leaders = {};
  int saved_step = 0;
  int wanted_steps = 0;
  bool over = false;
  SimLeader::OnFailure on_failure = {};
};

class SimMember {
 public:
  using Respond = World::Respond;
  using Kind = CoordinationAnswer::Kind;

  SimMember(World& world, Shared& shared, int index, int node)
      : world_(world), shared_(shared), index_(index), node_(node), process_(world.new_process()) {
    world_.note(name(), " begins on node ", node_);
    if (index_ == 0) {
      if (shared_.listening != nullptr) {
        end("the address is in use");
        return;
      }
      shared_.leaders.push_back(std::make_unique<SimLeader>(world_, shared_.cluster, process_, shared_.on_failure));
      shared_.listening = leader_ = shared_.leaders.back().get();
    }
    enter();
  }

  bool up() const { return up_; }
  int node() const { return node_; }
  int index() const { return index_; }
  bool is_member() const { return up_ && plan_.has_value(); }
  void kill() {
    if (!up_) return;
    world_.note(name(), " is killed");
    up_ = false;
    close_leader();
  }

 private:
  static constexpr int64_t kSlice = 1000;
  static constexpr int64_t kPart = 1000;  // the time that a call takes beside the wait
  static constexpr int64_t kStartTimeout = 60'000;

  std::string name() const { return c10::str("worker ", index_, " (process ", process_, ")"); }
  TaskProcess self() const { return {.task = {"worker", index_}, .incarnation = process_}; }
  void later(int64_t delay, const std::function<void()>& action) {
    world_.at(node_, delay, [this, action] {
      if (up_) action();
    });
  }
  // Calls whoever listens at the leader's address. `done` gets nothing if nobody answers.
  using Done = std::function<void(const std::optional<CoordinationAnswer>&)>;
  using Call = std::function<void(SimLeader& leader, const CoordinationState::Reply& reply)>;
  void call(int64_t limit, const Call& handle, const Done& done, int64_t again = 0) {
    constexpr int64_t kPause = 20;
    const auto handler = [this, handle](const Respond& respond) {
      if (shared_.listening == nullptr) return respond({});
      handle(*shared_.listening, shared_.listening->reply_to(respond));
    };
    world_.call(
        node_, /*to=*/0, limit, handler,
        [this, done](const Answer& answer) {
          if (!up_) return;
          if (answer.ok) return done(std::any_cast<CoordinationAnswer>(answer.value));
          later(kPause, [done] { done(std::nullopt); });
        },
        Delivery::kOnce, again);
  }
  // Repeats a call until the answer is complete. `done` gets that answer. With a plan the calls are signs of life.
  using Step = std::function<void(SimLeader& leader, CoordinationState::Time until, const CoordinationState::Reply&)>;
  void until_complete(const Step& step, const std::function<void(const CoordinationAnswer&)>& done, int64_t deadline,
                      const std::shared_ptr<BeatPlan>& plan = nullptr) {
    if (world_.now() > deadline) return end("a wait has ended");
    const auto beat = plan ? std::optional(plan->next(now_in(world_))) : std::nullopt;
    const int64_t slice = beat ? beat->wait.count() : kSlice;
    call(
        slice + kPart,
        [this, step, slice](SimLeader& leader, const CoordinationState::Reply& reply) {
          step(leader, now_in(world_) + std::chrono::milliseconds(slice), reply);
        },
        [this, step, done, deadline, plan](const std::optional<CoordinationAnswer>& answer) {
          if (answer && (answer->kind == Kind::kFailed || answer->kind == Kind::kRefused)) return end(answer->reason);
          if (answer && answer->kind == Kind::kDone) return done(*answer);
          if (plan && answer) plan->heard(now_in(world_));
          if (plan && !answer) plan->failed();
          later(50, [this, step, done, deadline, plan] { until_complete(step, done, deadline, plan); });
        },
        beat ? slice + beat->again.count() : 0);
  }

  void enter() {
    until_complete(
        [this](SimLeader& leader, CoordinationState::Time until, const CoordinationState::Reply& reply) {
          leader.state().register_task(self(), shared_.cluster.to_json(), name(), std::to_string(process_),
                                       now_in(world_), until, [this, &leader, reply](const CoordinationAnswer& answer) {
                                         if (answer.kind == Kind::kDone) leader.require_same(answer.infos);
                                         reply(answer);
                                       });
        },
        [this](const CoordinationAnswer& answer) {
          world_.note(name(), " is in the group of ", answer.infos.at(0));
          plan_.emplace(kHeartbeat, now_in(world_));
          beat();
          begin();
        },
        world_.now() + kStartTimeout, std::make_shared<BeatPlan>(kHeartbeat, now_in(world_)));
  }
  void beat() {
    const BeatPlan::Attempt attempt = plan_->next(now_in(world_));
    call(
        attempt.limit.count(),
        [this, wait = attempt.wait](SimLeader& leader, const CoordinationState::Reply& reply) {
          leader.state().beat(self(), left_, now_in(world_), now_in(world_) + wait, reply);
        },
        [this](const std::optional<CoordinationAnswer>& answer) {
          if (answer && answer->kind != Kind::kDone) return end(answer->reason, kPart);
          if (answer) {
            plan_->heard(now_in(world_));
            left_ = answer->left.size();
            if (left_ > 0 && !finished_) return end(answer->left.front() + " has ended");
          } else {
            plan_->failed();
            if (plan_->lost(now_in(world_))) return end("the leader is lost", kPart);
          }
          beat();
        },
        (attempt.wait + attempt.again).count());
  }

  // -- Training.

  void begin() {
    if (index_ == 0) {
      call(
          10 * kPart,
          [this](SimLeader& leader, const CoordinationState::Reply& reply) {
            leader.state().put(self(), "begin", std::to_string(shared_.saved_step), /*if_absent=*/true, reply);
          },
          [this](const std::optional<CoordinationAnswer>& answer) {
            if (!answer || answer->kind != Kind::kDone) return end("put failed");
            train(std::stoi(answer->value));
          });
      return;
    }
    until_complete([this](SimLeader& leader, CoordinationState::Time until,
                          const CoordinationState::Reply& reply) { leader.state().get(self(), "begin", until, reply); },
                   [this](const CoordinationAnswer& answer) { train(std::stoi(answer.value)); },
                   world_.now() + kStartTimeout);
  }
  void train(int step) {
    if (step >= shared_.wanted_steps) return finish();
    later(world_.between(20, 300), [this, step] { meet(step); });
  }
  void meet(int step) {
    const auto met_by = std::make_shared<SimLeader*>(nullptr);
    until_complete(
        [this, step, met_by](SimLeader& leader, CoordinationState::Time until, const CoordinationState::Reply& reply) {
          // One that is refused, as a stranger to this group is, has not come.
          if (leader.state().failure()) return reply({.kind = Kind::kFailed, .reason = *leader.state().failure()});
          *met_by = &leader;
          leader.arrive(step, index_);
          leader.state().barrier(self(), c10::str("step ", step), now_in(world_), until, reply);
        },
        [this, step, met_by](const CoordinationAnswer&) {
          (*met_by)->require_all(step);
          if (index_ == 0) shared_.saved_step = step + 1;
          train(step + 1);
        },
        world_.now() + kStartTimeout);
  }

  // -- The end.

  void finish() {
    finished_ = true;
    if (index_ == 0) shared_.over = true;
    end("all steps are done");
  }
  // Ends this process: it leaves, for which it tries for so long, and the leader serves until all have left or are
  // lost.
  void end(const std::string& why, int64_t limit = kHeartbeat.count()) {
    if (!up_ || std::exchange(ending_, true)) return;
    world_.note(name(), " ends: ", why);
    call(
        limit,
        [this](SimLeader& leader, const CoordinationState::Reply& reply) {
          leader.state().leave(self());
          leader.note_left(process_);
          reply({});
        },
        [this](const std::optional<CoordinationAnswer>&) { linger(world_.now() + 2 * kHeartbeat.count()); },
        BeatPlan::kAgain.count());
  }
  void linger(int64_t until) {
    if (leader_ != nullptr && !leader_->state().deserted() && world_.now() < until) {
      return later(10, [this, until] { linger(until); });
    }
    if (leader_ != nullptr) leader_->state().shut_down();
    up_ = false;
    close_leader();
  }
  void close_leader() {
    if (leader_ == nullptr) return;
    leader_->close();
    if (shared_.listening == leader_) shared_.listening = nullptr;
  }

  World& world_;
  Shared& shared_;
  const int index_;
  const int node_;
  const uint64_t process_;
  SimLeader* leader_ = nullptr;  // that of this process
  bool up_ = true;
  bool ending_ = false;
  bool finished_ = false;
  std::optional<BeatPlan> plan_;
  std::size_t left_ = 0;
};

}  // namespace cohort::simulation
