// CollectiveWatch: sees to it that collectives which devices do by themselves come to their end, because no thread
// waits for them: the host only tells the devices what to wait for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collective/process/flight_recorder.h"
#include "device/side_streams.h"

namespace cohort {

// Thread-safe.
class CollectiveWatch {
 public:
  struct Options {
    // The name that errors begin with, such as "nccl".
    std::string name;
    // The longest time from when the first device is in a collective until all have ended it.
    std::chrono::milliseconds timeout = std::chrono::minutes(10);
    // Returns what is wrong with what carries the collectives; empty: nothing. Asked while there are some.
    std::function<std::string()> ask;
    // Ends the collectives under way. Called once, after something has gone wrong.
    std::function<void()> abort;
    // Where collectives are noted; null: in a recorder of the watch's own.
    FlightRecorder* recorder = nullptr;
    // Returns who of other processes has not come to a collective, by its number in the recorder, as the end of a
    // sentence. Without it there are no others.
    std::function<std::string(uint64_t number)> others = {};
  };

  // One device's part of a collective.
  struct Part {
    std::string who;  // "replica 1 (cuda:1)"
    PointPtr begun;   // it has come to the collective
    PointPtr ended;
  };

  explicit CollectiveWatch(Options options);
  CollectiveWatch(const CollectiveWatch&) = delete;
  CollectiveWatch& operator=(const CollectiveWatch&) = delete;
  // Does not wait for what is under way.
  ~CollectiveWatch() = default;

  // Watches a collective from now on. They come to their ends in the order of the calls.
  void add(const std::string& what, std::vector<Part> parts);
  // Throws what has gone wrong, if something has: DeadlineExceeded, which names the collective, its number and the
  // devices that have not come; Unavailable, when a device or what carries the collectives has failed.
  void require_well() const;
  // Returns the last collectives.
  const FlightRecorder& recorder() const { return options_.recorder ? *options_.recorder : own_recorder_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Pending {
    uint64_t number = 0;
    std::string what;
    std::vector<Part> parts;
    std::optional<Clock::time_point> begun;  // seen that a device is in it
  };

  static std::string name_of(const Pending& pending);
  void work(const std::stop_token& stop);
  // Takes the collectives that have ended off the list. Returns what has gone wrong; empty: nothing.
  std::string look();
  std::string look_at(Pending& first);
  void give_up(const std::string& error, std::unique_lock<std::mutex>& lock);

  FlightRecorder& notes() { return options_.recorder ? *options_.recorder : own_recorder_; }

  Options options_;
  FlightRecorder own_recorder_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Pending> pending_;
  std::string error_;
  bool timed_out_ = false;
  std::jthread thread_;  // the last member: it uses the others
};

}  // namespace cohort
