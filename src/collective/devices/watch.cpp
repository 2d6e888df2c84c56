// One thread, which sleeps while there is nothing under way and otherwise asks now and then.
#include "collective/devices/watch.h"

#include <algorithm>

#include "base/deadline.h"
#include "base/error_text.h"
#include "base/fail.h"
#include "base/log.h"

namespace cohort {

namespace {

// Returns who is where in a collective that does not come to its end: "A has not come, B waits in it".
std::string places_in(const std::vector<CollectiveWatch::Part>& parts) {
  std::string missing;
  std::string inside;
  const auto list = [](std::string& names, const std::string& who) { names += (names.empty() ? "" : ", ") + who; };
  for (const CollectiveWatch::Part& part : parts) {
    if (!part.begun->reached()) {
      list(missing, part.who);
    } else if (!part.ended->reached()) {
      list(inside, part.who);
    }
  }
  if (missing.empty()) return c10::str("all have come, and it does not end on ", inside);
  return c10::str(missing, " has not come", inside.empty() ? "" : ", while it waits on ", inside);
}

}  // namespace

CollectiveWatch::CollectiveWatch(Options options)
    : options_(std::move(options)), thread_([this](const std::stop_token& stop) { work(stop); }) {}

void CollectiveWatch::add(const std::string& what, std::vector<Part> parts) {
  const std::lock_guard lock(mutex_);
  if (!error_.empty()) return;
  pending_.push_back({.number = notes().begin(what), .what = what, .parts = std::move(parts), .begun = {}});
  if (pending_.size() == 1) changed_.notify_all();
}

void CollectiveWatch::require_well() const {
  const std::lock_guard lock(mutex_);
  if (error_.empty()) return;
  if (timed_out_) throw DeadlineExceeded(error_);
  throw Unavailable(error_);
}

void CollectiveWatch::work(const std::stop_token& stop) {
  using std::chrono::milliseconds;
  const milliseconds pause = std::clamp(options_.timeout / 20, milliseconds(1), milliseconds(50));
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (!changed_.wait(lock, stop, [this] { return !pending_.empty(); })) return;
    std::string error;
    try {
      error = look();
    } catch (const std::exception& failure) {
      const std::string why = options_.ask();
      error = c10::str("a device has failed in ", name_of(pending_.front()), ": ", error_text(failure),
                       why.empty() ? "" : "; ", why);
    }
    if (!error.empty()) return give_up(error, lock);
    changed_.wait_for(lock, stop, pause, [] { return false; });
  }
}

std::string CollectiveWatch::name_of(const Pending& pending) {
  return c10::str("collective ", pending.number, " (", pending.what, ")");
}

std::string CollectiveWatch::look() {
  while (!pending_.empty()) {
    Pending& first = pending_.front();
    const bool ended =
        std::all_of(first.parts.begin(), first.parts.end(), [](const Part& part) { return part.ended->reached(); });
    if (!ended) return look_at(first);
    notes().end(first.number);
    pending_.pop_front();
  }
  return {};
}

// Devices that are all busy with something else may come late: only one that waits for another is in need.
std::string CollectiveWatch::look_at(Pending& first) {
  if (const std::string failure = options_.ask(); !failure.empty()) {
    return c10::str(name_of(first), " has failed: ", failure, "; ", places_in(first.parts));
  }
  const auto now = Clock::now();
  if (!first.begun &&
      std::any_of(first.parts.begin(), first.parts.end(), [](const Part& part) { return part.begun->reached(); })) {
    first.begun = now;
  }
  if (!first.begun || now - *first.begun < options_.timeout) return {};
  timed_out_ = true;
  return c10::str(name_of(first), " has taken ", to_text(options_.timeout), ": ", places_in(first.parts),
                  options_.others ? options_.others(first.number) : "");
}

void CollectiveWatch::give_up(const std::string& error, std::unique_lock<std::mutex>& lock) {
  error_ = c10::str("[collective] ", options_.name, ": ", error, "; make a new strategy and go on from a checkpoint");
  notes().end(pending_.front().number, error);
  log().error("{}\nThe last collectives:\n{}", error_, notes().dump());
  pending_.clear();
  lock.unlock();
  options_.abort();
}

}  // namespace cohort
