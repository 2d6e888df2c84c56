// World: nodes, their clock and their network, in one thread. What happens depends on the seed alone: messages are
// late, lost, doubled and overtake each other; nodes are stopped and go on; single directions of links are cut.
#pragma once

#include <algorithm>
#include <any>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"

namespace cohort::simulation {

// The end of a call.
struct Answer {
  bool ok = false;
  bool refused = false;  // FailedPrecondition
  std::any value = {};
};

// How often a message may arrive.
enum class Delivery {
  kOnce,    // never, or once, however late
  kDoubled  // it may also arrive again, so that what is ordered has to be the same when it is ordered twice
};

class World {
 public:
  using Action = std::function<void()>;
  using Done = std::function<void(const Answer&)>;

  class Respond;
  using Handler = std::function<void(const Respond&)>;

 private:
  // A call, for as long as a message of it may arrive.
  struct Call {
    int from = 0;
    int to = 0;
    Handler handler;
    Done done;
    bool open = true;  // the caller waits

    void end(const Answer& answer) {
      if (std::exchange(open, false)) done(answer);
    }
  };

 public:
  // A call at the node that answers it.
  class Respond {
   public:
    Respond(World& world, std::shared_ptr<Call> call) : world_(world), call_(std::move(call)) {}
    void operator()(const Answer& answer) const {
      world_.send(
          call_->to, call_->from, [call = call_, answer] { call->end(answer); }, Delivery::kDoubled);
    }
    // Returns whether the caller has given it up.
    bool cancelled() const { return !call_->open; }

   private:
    World& world_;
    std::shared_ptr<Call> call_;
  };

  // Makes a world whose history is kept, or one that is quicker.
  enum class History { kKept, kNone };
  explicit World(uint64_t seed, History history = History::kKept)
      : keeps_history_(history == History::kKept), state_(seed * 0x9E3779B97F4A7C15ULL + 1) {}

  int64_t now() const { return now_; }  // ms

  // Lets the clock of a node run slower or faster, by so many thousandths.
  void set_drift(int node, int thousandths) { drift_[node] = thousandths; }
  // Returns the milliseconds that have passed by a node's clock.
  int64_t clock(int node) const {
    const auto drift = drift_.find(node);
    return drift == drift_.end() ? now_ : now_ * (kWhole + drift->second) / kWhole;
  }
  // Returns how long it takes until such a time has passed by a node's clock.
  int64_t real(int node, int64_t time) const {
    const auto drift = drift_.find(node);
    return drift == drift_.end() ? time : (time * kWhole + kWhole + drift->second - 1) / (kWhole + drift->second);
  }

  // Returns a number below `below`.
  uint64_t draw(uint64_t below) {  // splitmix64
    uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return (z ^ (z >> 31)) % below;
  }
  int64_t between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(draw(static_cast<uint64_t>(most - least + 1)));
  }
  bool chance(int percent) { return draw(100) < static_cast<uint64_t>(percent); }
  uint64_t new_process() { return ++processes_; }

  // Notes that a promise was broken. The first one counts.
  template <typename... Parts>
  void violate(const Parts&... parts) {
    const std::string what = c10::str(parts...);
    note("!! ", what);
    if (violation_.empty()) violation_ = what;
  }
  const std::string& violation() const { return violation_; }

  // Adds to the history, of which the last lines are kept.
  template <typename... Parts>
  void note(const Parts&... parts) {
    constexpr std::size_t kLines = 600;
    if (!keeps_history_) return;
    history_.push_back(c10::str(now_, " ms: ", parts..., "\n"));
    if (history_.size() > kLines) history_.pop_front();
  }
  std::string history() const {
    std::string text;
    for (const std::string& line : history_) text += line;
    return text;
  }

  // Lets a node act later. While it is stopped it does not act; afterwards everything happens in its order.
  void at(int node, int64_t delay, Action action) {
    add({.time = now_ + delay, .order = ++order_, .node = node, .action = std::move(action)});
  }
  void stop(int node, int64_t time) {
    note("node ", node, " is stopped for ", time, " ms");
    stopped_until_[node] = now_ + time;
  }
  void cut(int from, int to, int64_t time) {
    note("what node ", from, " sends to ", to, " is lost for ", time, " ms");
    cut_until_[{from, to}] = now_ + time;
  }
  // From now on nothing is lost, doubled, cut or stopped.
  void calm() {
    note("from now on nothing goes wrong");
    calm_ = true;
    cut_until_.clear();
    stopped_until_.clear();
  }
  bool is_calm() const { return calm_; }

  void send(int from, int to, const Action& arrive, Delivery delivery) {
    constexpr int kLossPercent = 2;
    constexpr int kDoublePercent = 2;
    constexpr int kLatePercent = 1;
    if (from == to) return at(to, 0, arrive);  // no network is in between
    if (!calm_ && (chance(kLossPercent) || cut_until_[{from, to}] > now_)) return;
    if (delivery == Delivery::kOnce) {
      return at(to, !calm_ && chance(kLatePercent) ? between(200, 3000) : between(1, 20), arrive);
    }
    at(to, between(1, 20), arrive);
    if (calm_) return;
    if (chance(kDoublePercent)) at(to, between(1, 200), arrive);
    if (chance(kLatePercent)) at(to, between(200, 3000), arrive);  // a copy that comes when nobody expects it
  }

  // Calls a handler at another node. `done` gets its answer, or at the limit one that is not ok. Until then the call is
  // sent again every `again`; 0: never.
  void call(int from, int to, int64_t limit, const Handler& handler, const Done& done,
            Delivery delivery = Delivery::kDoubled, int64_t again = 0) {
    const auto call = std::make_shared<Call>(Call{.from = from, .to = to, .handler = handler, .done = done});
    const auto arrive = [this, call] {
      const Respond respond(*this, call);
      try {
        call->handler(respond);
      } catch (const FailedPrecondition&) {
        respond({.refused = true});
      } catch (const Error&) {
        respond({});
      }
    };
    send(from, to, arrive, delivery);
    if (again > 0) send_again(call, arrive, delivery, again);
    at(from, limit, [call] { call->end({}); });
  }

  // Lets the next thing happen. Returns false if there is none.
  bool step() {
    if (events_.empty()) return false;
    std::pop_heap(events_.begin(), events_.end(), is_later);
    Event event = std::move(events_.back());
    events_.pop_back();
    now_ = event.time;
    const auto stopped = stopped_until_.find(event.node);
    if (stopped != stopped_until_.end() && stopped->second > now_) {
      event.time = stopped->second;
      add(std::move(event));
      return true;
    }
    event.action();
    return true;
  }

 private:
  void send_again(const std::shared_ptr<Call>& call, const Action& arrive, Delivery delivery, int64_t again) {
    at(call->from, again, [this, call, arrive, delivery, again] {
      if (!call->open) return;
      send(call->from, call->to, arrive, delivery);
      send_again(call, arrive, delivery, again);
    });
  }

  static constexpr int64_t kWhole = 1000;

  struct Event {
    int64_t time = 0;
    uint64_t order = 0;
    int node = 0;
    Action action;
  };
  static bool is_later(const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : a.order > b.order;
  }
  void add(Event event) {
    events_.push_back(std::move(event));
    std::push_heap(events_.begin(), events_.end(), is_later);
  }

  const bool keeps_history_;
  uint64_t state_;
  int64_t now_ = 0;
  uint64_t order_ = 0;
  uint64_t processes_ = 100;
  bool calm_ = false;
  std::vector<Event> events_;  // a heap, the next one first
  std::map<int, int> drift_;
  std::map<int, int64_t> stopped_until_;
  std::map<std::pair<int, int>, int64_t> cut_until_;
  std::deque<std::string> history_;
  std::string violation_;
};

}  // namespace cohort::simulation
