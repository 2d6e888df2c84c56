// What the keeper of the parameter servers is told, and what it tells.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>

#include "messages.pb.h"

namespace cohort {

struct KeeperOptions {
  // The number of the run, in which epochs only grow. What clients know of another run is of no use.
  uint64_t run = 1;
  int replicas = 1;  // 2: every shard is on two servers
  // The directory in which the epochs of its coordinators are noted. Empty: nowhere; servers know them, too.
  std::filesystem::path directory = {};
  // The longest wait for all servers at first, and for a lost one to come back.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(10);
  std::chrono::milliseconds return_timeout = std::chrono::minutes(10);
  std::chrono::milliseconds report_interval = std::chrono::seconds(5);
  // The time that a server may be silent before it is lost.
  std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(5);
  // The longest time of a call that moves shards, and the longest time without progress of a copy between servers.
  std::chrono::milliseconds call_timeout = std::chrono::minutes(1);
};

// The events that the keeper reports, on its own threads.
struct KeeperEvents {
  std::function<void(const parameter_server::View&)> view = [](const auto&) {};
  // Shards were filled with the values from before this closure, so that the work from it on has to be repeated.
  // Returns whether all of it will be.
  std::function<bool(int64_t)> restored = [](int64_t) { return true; };
  // Returns the id before which all work is done. Servers forget the updates of that work.
  std::function<int64_t()> done_below = [] { return int64_t{0}; };
  // The run cannot go on: a server did not come back in time, or another coordinator is in charge.
  std::function<void(const std::exception_ptr&)> lost = [](const auto&) {};
};

}  // namespace cohort
