// Runs what is recorded (src/wings/xla/record) on the devices of a client.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "wings/xla/base/recent.h"
#include "wings/xla/device/client.h"
#include "wings/xla/record/runner.h"

namespace cohort {

class XlaCores;

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
class XlaRunner final : public record::GraphRunner {
 public:
  // NotFound: the client has no such device in this process.
  XlaRunner(XlaClientPtr client, XlaRunnerOptions options);

  int devices() const override { return static_cast<int>(options_.devices.size()); }

  // Gives devices their cores: xla:replicas[r][0] runs its programs on the devices replicas[r], until the last copy of
  // the result is gone; then it is its only core again. InvalidArgument: no core, replicas of different sizes, no such
  // device, or one that is named twice. FailedPrecondition: another holder has given one of them other cores.
  std::shared_ptr<const void> hold_cores(const std::vector<std::vector<int>>& replicas);

  std::shared_ptr<record::DeviceData> place(const torch::Tensor& host, int device) override;

  torch::Tensor fetch(const record::DeviceData& data, const record::TensorType& type) override;

  std::vector<std::shared_ptr<record::DeviceData>> run(const std::shared_ptr<const record::Program>& program,
                                                       std::span<const std::shared_ptr<record::DeviceData>> inputs,
                                                       int device) override;

  std::vector<std::vector<std::shared_ptr<record::DeviceData>>> run_replicas(
      const std::shared_ptr<const record::Program>& program,
      std::span<const std::vector<std::shared_ptr<record::DeviceData>>> inputs, std::span<const int> devices) override;

  record::ProgramCost cost(const std::shared_ptr<const record::Program>& program, int device) override;

  // Makes run_replicas() of the devices pod.local a launch of all processes, until the last copy of the result is gone.
  // InvalidArgument: the pod has other devices than this process. FailedPrecondition: another one is held.
  std::shared_ptr<const void> hold_pod(XlaPod pod);

  // Returns how many compiled programs are kept (record::kept_programs).
  std::size_t compiled_programs() const;

  // Returns whether the last launch of all processes has ended. One whose process is lost may never do so.
  bool pod_is_idle() const;

  std::shared_ptr<record::Hosts> hosts(std::span<const int> devices) const override;

 private:
  using Values = std::vector<std::shared_ptr<record::DeviceData>>;
  // Where a program runs.
  struct Slots {
    int replicas = 1;
    int cores = 1;         // of each replica
    std::vector<int> ids;  // the device of core c of replica r, at r * cores + c

    bool operator<(const Slots& other) const {
      return std::tie(replicas, cores, ids) < std::tie(other.replicas, other.cores, other.ids);
    }
  };

  // Begins a program on the devices, and with a pod on those of the other processes, too, which do the same.
  std::vector<Values> launch(const std::shared_ptr<const record::Program>& program, std::span<const Values> inputs,
                             std::span<const int> devices, const std::shared_ptr<const XlaPod>& pod);

  // Fails unless the replicas that are to be this process's are on its devices.
  void check(const XlaPod& pod) const;

  // Returns the pod whose devices of this process these are, or null.
  std::shared_ptr<const XlaPod> pod_of(std::span<const int> devices) const;

  // Waits for launches that have begun if there are too many: what they take lies in memory.
  void wait_for_room();
  void note_begun(const XlaEvent& launch);

  // Nothing: a launch is about to begin, which may not come back from the plugin.
  void note_launch(std::optional<XlaEvent> done);
  std::optional<XlaEvent> last_launch() const;

  static Slots slots_of(const XlaPod& pod);

  Slots slots_of(std::span<const int> devices) const;

  // Gathers the results of each replica's cores, core 0 first.
  static std::vector<Values> values_of(const XlaExecutable& program, const XlaLists& results, int first,
                                       std::size_t replicas);

  XlaExecutablePtr executable(const std::shared_ptr<const record::Program>& program, const Slots& slots);

  XlaClientPtr client_;
  XlaRunnerOptions options_;
  std::shared_ptr<XlaCores> cores_;
  mutable std::mutex mutex_;
  std::weak_ptr<const XlaPod> pod_;
  std::optional<XlaEvent> last_launch_ = XlaEvent();  // of all processes
  std::deque<XlaEvent> ahead_;                        // launches that may not have ended, in their order
  // Programs of one signature are one object (record::ProgramCache).
  Recent<std::pair<std::shared_ptr<const record::Program>, Slots>, XlaExecutablePtr> executables_;
};

// Makes a runner, for record::set_runner(). A program is compiled at its first run on a device, or on several
// together, and kept as long as it is among the last record::kept_programs() that were launched. NotFound: the client
// has no such device in this process.
std::shared_ptr<XlaRunner> make_xla_runner(XlaClientPtr client, XlaRunnerOptions options = {});

}  // namespace cohort
