// World: nodes, their clock and their network, in one thread. What happens depends on the seed alone: messages are
// late, lost, doubled and overtake each other; nodes are stopped and go on; single directions of links are cut.
#pragma once

#include <any>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

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

  // A call at the node that answers it.
  class Respond {
   public:
    Respond(Done answer, std::shared_ptr<const bool> open) : answer_(std::move(answer)), open_(std::move(open)) {}
    void operator()(const Answer& answer) const { answer_(answer); }
    // Returns whether the caller has given it up.
    bool cancelled() const { return !*open_; }

   private:
    Done answer_;
    std::shared_ptr<const bool> open_;
  };
  using Handler = std::function<void(const Respond&)>;

  explicit World(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 1) {}

  int64_t now() const { return now_; }  // ms

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
    events_.emplace(std::pair(now_ + delay, ++order_), std::pair(node, std::move(action)));
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
    if (!calm_ && (chance(kLossPercent) || cut_until_[{from, to}] > now_)) return;
    if (delivery == Delivery::kOnce) {
      return at(to, !calm_ && chance(kLatePercent) ? between(200, 3000) : between(1, 20), arrive);
    }
    at(to, between(1, 20), arrive);
    if (calm_) return;
    if (chance(kDoublePercent)) at(to, between(1, 200), arrive);
    if (chance(kLatePercent)) at(to, between(200, 3000), arrive);  // a copy that comes when nobody expects it
  }

  // Calls a handler at another node. `done` gets its answer, or at the limit one that is not ok.
  void call(int from, int to, int64_t limit, const Handler& handler, const Done& done,
            Delivery delivery = Delivery::kDoubled) {
    const auto open = std::make_shared<bool>(true);
    const auto end = [open, done](const Answer& answer) {
      if (std::exchange(*open, false)) done(answer);
    };
    const Respond respond(
        [this, from, to, end](const Answer& answer) {
          send(
              to, from, [end, answer] { end(answer); }, Delivery::kDoubled);
        },
        open);
    const auto arrive = [handler, respond] {
      try {
        handler(respond);
      } catch (const FailedPrecondition&) {
        respond({.refused = true});
      } catch (const Error&) {
        respond({});
      }
    };
    send(from, to, arrive, delivery);
    at(from, limit, [end] { end({}); });
  }

  // Lets the next thing happen. Returns false if there is none.
  bool step() {
    if (events_.empty()) return false;
    auto event = events_.extract(events_.begin());
    now_ = event.key().first;
    const auto& [node, action] = event.mapped();
    if (const auto stopped = stopped_until_.find(node); stopped != stopped_until_.end() && stopped->second > now_) {
      event.key() = {stopped->second, event.key().second};
      events_.insert(std::move(event));
      return true;
    }
    action();
    return true;
  }

 private:
  uint64_t state_;
  int64_t now_ = 0;
  uint64_t order_ = 0;
  uint64_t processes_ = 100;
  bool calm_ = false;
  std::map<std::pair<int64_t, uint64_t>, std::pair<int, Action>> events_;  // by time and order
  std::map<int, int64_t> stopped_until_;
  std::map<std::pair<int, int>, int64_t> cut_until_;
  std::deque<std::string> history_;
  std::string violation_;
};

}  // namespace cohort::simulation
