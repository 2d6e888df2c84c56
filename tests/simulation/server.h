// SimServer: a parameter server of the simulation. What it accepts is decided by the library's ServerFence, and its
// updates are applied by the library's Shard with its UpdateLog. What lies between, messages and threads, is simulated:
// a home has one shard, a copy is three messages, and an update that meets a copy waits for the next attempt.
#pragma once

#include <torch/types.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/world.h"
#include "wings/parameter_server/server/fence.h"
#include "wings/parameter_server/server/shard.h"

namespace cohort::simulation {

namespace proto = parameter_server;

constexpr int kHomes = 3;
constexpr int64_t kClosures = 40;
constexpr int kFirstServer = 10;  // the node of server 0
constexpr int64_t kServerCall = 300;

// The counters of one home: how often each closure was applied.
using Counts = torch::Tensor;

inline Counts no_counts() {
  return torch::zeros({kClosures}, torch::kLong);
}

inline std::shared_ptr<Shard> make_counters(const Counts& counts, int64_t next_closure) {
  auto shard = std::make_shared<Shard>(
      ShardSpec{.name = "counts", .shape = {kClosures}, .dtype = torch::kLong, .trainable = false}, counts.clone(),
      SGD());
  shard->forget_updates_below(next_closure);
  return shard;
}

struct Update {
  uint64_t epoch = 0;
  uint64_t view = 0;
  int home = 0;
  int64_t closure = 0;
};

class SimServer {
 public:
  using Respond = World::Respond;
  using Fleet = std::vector<std::unique_ptr<SimServer>>;

  SimServer(World& world, Fleet& fleet, int index) : world_(world), fleet_(fleet), index_(index) { start(); }

  void start() {
    const uint64_t process = world_.new_process();
    fence_ = std::make_unique<ServerFence>(index_, process, "ps " + std::to_string(index_));
    homes_.clear();
    up_ = true;
    world_.note("ps ", index_, " is process ", process);
  }
  void kill() {
    up_ = false;
    world_.note("ps ", index_, " is killed");
  }
  bool up() const { return up_; }
  bool is(uint64_t process) const { return up_ && fence_->process() == process; }
  int node() const { return kFirstServer + index_; }
  // Returns the counters of a home; undefined: they are not here.
  Counts counts(int home) { return homes_[home].shard ? homes_[home].shard->read()->value : Counts(); }

  // -- Orders.

  struct Hello {
    uint64_t process = 0;
    uint64_t epoch = 0;
  };
  void hello(const Respond& respond) {
    if (up_) respond({.ok = true, .value = Hello{.process = fence_->process(), .epoch = fence_->epoch()}});
  }
  void set_view(const proto::View& view, const Respond& respond) {
    if (!up_) return;
    proto::Order order;
    order.set_epoch(view.epoch());
    fence_->obey(order);
    if (fence_->is_later(view)) {
      for (int home = 0; home < view.homes_size(); ++home) {
        if (fence_->has(view.homes(home)) && !homes_[home].shard) fail<FailedPrecondition>("it is not here");
      }
      for (int home = 0; home < view.homes_size(); ++home) {
        if (!fence_->stays(view, home)) homes_[home] = {};
      }
      fence_->take(view);
    }
    respond({.ok = true});
  }
  void fill(const proto::Order& order, int home, const Counts& counts, int64_t next_closure, const Respond& respond) {
    if (!up_) return;
    fence_->obey(order);
    fence_->require_fill(order, home, /*term=*/0);
    homes_[home] = {.shard = make_counters(counts, next_closure)};
    respond({.ok = true});
  }
  void copy(const proto::Order& order, int home, uint64_t term, const Respond& respond) {
    if (!up_) return;
    fence_->obey(order);
    const proto::View::Home place = fence_->require_copy(order, home, term);
    const std::shared_ptr<Shard> shard = homes_[home].shard;
    if (!shard || copying_ == shard) fail<Unavailable>("it is busy");
    copying_ = shard;
    const Shard::Snapshot snapshot = shard->snapshot();
    const int64_t half = kClosures / 2;
    Install install{.order = {}, .home = home, .term = term};
    install.order.set_epoch(order.epoch());
    install.order.set_process(place.joining_process());
    install.order.set_serial(++copies_);
    std::vector<Install> parts(3, install);
    parts[0].tensors = {snapshot.rows(0, half).front().clone()};
    parts[1].tensors = {snapshot.rows(half, kClosures - half).front().clone()};
    parts[1].first = half;
    parts[2].tensors = snapshot.progress();
    parts[2].first = kClosures;
    send_part(place.joining(), std::move(parts), 0, [this, shard, respond](const Answer& answer) {
      if (copying_ == shard) copying_.reset();
      respond(answer);
    });
  }
  void state(const proto::Order& order, int home, const Respond& respond) {
    if (!up_) return;
    fence_->obey(order);
    fence_->require_view(order.epoch(), order.view());
    (void)fence_->require_primary(home);
    if (!homes_[home].shard) fail<Unavailable>("it is not here");
    respond({.ok = true, .value = counts(home)});
  }
  void forget(const proto::Order& order, int64_t closure) {
    if (!up_) return;
    fence_->obey(order);
    fence_->require_view(order.epoch(), order.view());
    for (auto& [home, place] : homes_) {
      if (place.shard && fence_->has(fence_->view().homes(home))) place.shard->forget_updates_below(closure);
    }
  }

  // -- Updates.

  void push(const Update& update, const Respond& respond) {
    if (!up_) return;
    fence_->require_view(update.epoch, update.view);
    const proto::View::Home place = fence_->require_primary(update.home);
    if (copying_ && homes_[update.home].shard == copying_) fail<Unavailable>("it is being copied");
    apply(update);
    const auto left = std::make_shared<int>(1);
    const auto failed = std::make_shared<bool>(false);
    const auto end_one = [left, failed, respond](const Answer& answer) {
      *failed = *failed || !answer.ok;
      if (--*left == 0) respond({.ok = !*failed});
    };
    for (const int backup : {place.backup(), place.joining()}) {
      if (backup < 0) continue;
      ++*left;
      SimServer& to = *fleet_[static_cast<std::size_t>(backup)];
      world_.call(
          node(), to.node(), kServerCall, [&to, update](const Respond& r) { to.replicate(update, r); }, end_one);
    }
    end_one({.ok = true});
  }

 private:
  struct Place {
    std::shared_ptr<Shard> shard = nullptr;
    std::shared_ptr<Shard> arriving = nullptr;
    uint64_t serial = 0;  // the attempt whose parts arrive
    int64_t rows = 0;     // number of rows that have arrived
  };
  struct Install {
    proto::Order order;
    int home = 0;
    uint64_t term = 0;
    int64_t first = 0;  // kClosures: the tensors are those of its progress
    std::vector<torch::Tensor> tensors = {};
  };

  void apply(const Update& update) {
    if (!homes_[update.home].shard) fail<Unavailable>("it is not here");
    Counts delta = no_counts();
    delta[update.closure] = 1;
    (void)homes_[update.home].shard->add({.closure = update.closure}, delta);
  }
  void replicate(const Update& update, const Respond& respond) {
    if (!up_) return;
    fence_->require_view(update.epoch, update.view);
    const bool joins = fence_->joins(fence_->view().homes(update.home));
    if (fence_->require_backup(update.home) && (!joins || homes_[update.home].shard)) apply(update);
    respond({.ok = true});
  }
  void send_part(int server, std::vector<Install> parts, std::size_t index, const World::Done& done) {
    SimServer& to = *fleet_[static_cast<std::size_t>(server)];
    const uint64_t process = fence_->process();
    const Install part = parts.at(index);
    world_.call(
        node(), to.node(), kServerCall, [&to, part](const Respond& respond) { to.install(part, respond); },
        [this, server, process, parts = std::move(parts), index, done](const Answer& answer) {
          if (!up_ || fence_->process() != process) return;
          if (!answer.ok || index + 1 == parts.size()) return done(answer);
          send_part(server, parts, index + 1, done);
        });
  }
  void install(const Install& part, const Respond& respond) {
    if (!up_) return;
    fence_->obey(part.order);
    fence_->require_fill(part.order, part.home, part.term);
    Place& place = homes_[part.home];
    if (part.first == 0) {
      place.arriving = make_counters(no_counts(), 0);
      place.serial = part.order.serial();
      place.rows = 0;
    }
    if (!place.arriving || place.serial != part.order.serial() || place.rows != part.first) {
      fail<FailedPrecondition>("what comes before it is not here");
    }
    if (part.first < kClosures) {
      place.arriving->load_rows(part.first, part.tensors);
      place.rows += part.tensors.front().size(0);
    } else {
      place.arriving->load_progress(part.tensors);
      place.shard = std::exchange(place.arriving, nullptr);
    }
    respond({.ok = true});
  }

  World& world_;
  Fleet& fleet_;
  const int index_;
  std::unique_ptr<ServerFence> fence_;
  std::map<int, Place> homes_;
  std::shared_ptr<Shard> copying_;  // the shard of which a snapshot is being sent; updates of it wait
  uint64_t copies_ = 0;
  bool up_ = false;
};

}  // namespace cohort::simulation
