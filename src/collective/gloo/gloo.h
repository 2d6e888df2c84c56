// The wire between processes over TCP, by the Gloo library.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "collective/process/wire.h"

namespace cohort {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  std::string host;    // listens here and nowhere else
  std::string prefix;  // of this group's keys
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // The ranks find each other through these.
  std::function<void(const std::string& key, const std::string& value)> put = {};
  std::function<std::string(const std::string& key, std::chrono::milliseconds timeout)> get = {};
};

// Connects all ranks. Unavailable: the host is not this machine's, or a rank cannot be reached.
std::unique_ptr<Wire> make_gloo(const GlooOptions& options);

}  // namespace cohort
