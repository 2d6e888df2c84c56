// Runs what is recorded (src/wings/xla/record) on the devices of a client.
#pragma once

#include <memory>
#include <vector>

#include "wings/xla/device/client.h"
#include "wings/xla/record/runner.h"

namespace cohort {

struct XlaRunnerOptions {
  // The ids of the devices that xla:0, xla:1, ... are. Empty: all of this process.
  std::vector<int> devices = {};
  // XLA's flags for the programs, as in XlaCompileOptions.
  std::map<std::string, std::string> flags = {};
  // The longest that a compilation may take, and that reading a value may wait.
  std::chrono::milliseconds compile_limit = std::chrono::hours(1);
  std::chrono::milliseconds limit = kXlaWait;
  // How many launches may have begun and not ended: the next one waits for the first of them, at most `limit`.
  std::size_t most_ahead = 256;
};

// What the devices of several processes run together: one program with a replica for each.
struct XlaPod {
  // The ids of the devices of the replicas of all processes, in the order of their numbers: [replica][core].
  std::vector<std::vector<int>> replicas;
  int first = 0;           // the first replica of this process
  std::vector<int> local;  // those of this process follow it: replica first + i is xla:local[i]
  std::shared_ptr<record::Hosts> hosts;
};

// Runs programs on devices, each of which may be several cores: the device and others, among which XLA divides its
// programs. A value lies on all of them, whole. Thread-safe.
class XlaRunner : public record::GraphRunner {
 public:
  // Gives devices their cores: xla:replicas[r][0] runs its programs on the devices replicas[r], until the last copy of
  // the result is gone; then it is its only core again. InvalidArgument: no core, replicas of different sizes, no such
  // device, or one that is named twice. FailedPrecondition: another holder has given one of them other cores.
  virtual std::shared_ptr<const void> hold_cores(const std::vector<std::vector<int>>& replicas) = 0;

  // Makes run_replicas() of the devices pod.local a launch of all processes, until the last copy of the result is gone.
  // InvalidArgument: the pod has other devices than this process. FailedPrecondition: another one is held.
  virtual std::shared_ptr<const void> hold_pod(XlaPod pod) = 0;
  // Returns how many compiled programs are kept (record::kept_programs).
  virtual std::size_t compiled_programs() const = 0;
  // Returns whether the last launch of all processes has ended. One whose process is lost may never do so.
  virtual bool pod_is_idle() const = 0;
};

// Makes a runner, for record::set_runner(). A program is compiled at its first run on a device, or on several
// together, and kept as long as it is among the last record::kept_programs() that were launched. NotFound: the client
// has no such device in this process.
std::shared_ptr<XlaRunner> make_xla_runner(XlaClientPtr client, XlaRunnerOptions options = {});

}  // namespace cohort
