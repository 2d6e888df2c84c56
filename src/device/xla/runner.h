// Runs what is recorded (src/record) on the devices of a client.
#pragma once

#include <memory>
#include <vector>

#include "device/xla/client.h"
#include "record/runner.h"

namespace cohort {

struct XlaRunnerOptions {
  // The ids of the devices that xla:0, xla:1, ... are. Empty: all of this process.
  std::vector<int> devices = {};
  // XLA's flags for the programs, as in XlaCompileOptions.
  std::map<std::string, std::string> flags = {};
  // The longest that a compilation may take, and that reading a value may wait.
  std::chrono::milliseconds compile_limit = std::chrono::hours(1);
  std::chrono::milliseconds limit = kXlaWait;
};

// Runs programs on devices, each of which may be several cores: the device and others, among which XLA divides its
// programs. A value lies on all of them, whole. Thread-safe.
class XlaRunner : public record::GraphRunner {
 public:
  // Gives devices their cores: xla:replicas[r][0] runs its programs on the devices replicas[r], until the last copy of
  // the result is gone; then it is its only core again. InvalidArgument: no core, replicas of different sizes, no such
  // device, or one that is named twice. FailedPrecondition: another holder has given one of them other cores.
  virtual std::shared_ptr<const void> hold_cores(const std::vector<std::vector<int>>& replicas) = 0;
};

// Makes a runner, for record::set_runner(). A program is compiled at its first run on a device, or on several
// together, and kept. NotFound: the client has no such device in this process.
std::shared_ptr<XlaRunner> make_xla_runner(XlaClientPtr client, XlaRunnerOptions options = {});

}  // namespace cohort
