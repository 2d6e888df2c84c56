// XLA's devices through a PJRT plugin: a client with its devices, buffers on them, and programs that run on them. This
// header is what the rest of the library uses; nothing above src/device names PJRT.
//
//   XlaClientPtr client = XlaClient::create(XlaPlugin::load(find_xla_plugin("cpu")), {});
//   XlaExecutablePtr program = client->compile(text, {.num_replicas = 2});
//   XlaLaunch launch = program->launch({{weights0, x0}, {weights1, x1}});   // returns before it has run
//   torch::Tensor loss = launch.outputs[0][1].to_host();                    // waits
//
// All classes are thread-safe, except that a handle (XlaBuffer, XlaEvent) may not be assigned to while another thread
// uses it. Work on a device is done in the order in which it was asked for; a launch on several devices is begun on all
// of them before another such launch, so two threads cannot make the devices wait for each other.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "wings/xla/device/plugin.h"
#include "wings/xla/device/processes.h"
#include "wings/xla/device/program.h"
#include "wings/xla/device/types.h"

namespace cohort {

class XlaClient;
class XlaExecutable;
using XlaClientPtr = std::shared_ptr<const XlaClient>;
using XlaExecutablePtr = std::shared_ptr<const XlaExecutable>;

// The limit of a wait for which none is given.
inline constexpr std::chrono::minutes kXlaWait(10);

// A point in a device's work, which is reached or fails. Without a state (default) it has been reached.
class XlaEvent {
 public:
  class State;

  XlaEvent() = default;
  explicit XlaEvent(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // Returns whether it has been reached or has failed. Does not wait.
  bool ready() const;
  // Waits for it. If there are several parts (the replicas of a launch) the first that fails ends the wait.
  // DeadlineExceeded names what was waited for. Others: the work has failed; the message is the plugin's.
  void wait(const Deadline& deadline = Deadline(kXlaWait)) const;

 private:
  std::shared_ptr<State> state_;
};

// A device of a client or of a topology. A value.
struct XlaDevice {
  int id = 0;                           // its number among the devices of all processes
  int process = 0;                      // the process that drives it
  bool local = true;                    // whether that is this one
  std::string kind;                     // "TPU v5 lite", "cpu"
  std::string name;                     // as the plugin prints it
  std::vector<int64_t> coordinates;     // where the chip is in the mesh; empty if the plugin does not tell
  int core_on_chip = 0;                 // the number of the core on its chip
  std::optional<int64_t> memory_bytes;  // the size of its memory, if the plugin tells
  XlaOptions attributes;                // all that the plugin tells
};

// The figures of a device's memory. Those that the plugin does not tell are absent.
struct XlaMemory {
  int64_t in_use = 0;
  std::optional<int64_t> peak;
  std::optional<int64_t> limit;
};

// The way in which a copy to a device treats the memory of the host's tensor.
enum class XlaHostMemory {
  kCopied,  // the tensor may be written to at once
  kKept,    // it is read during the copy, which goes on after the call; it is held, and may be written to afterwards
  kShared,  // as kKept, but a device that can (a CPU, memory aligned to 64 bytes) reads it where it is instead of
            // copying it, as long as the buffer lives; until then it may not be written to. The device never writes to
            // it
};

// A tensor that is being copied to the host.
class XlaHostCopy {
 public:
  XlaHostCopy() = default;
  XlaHostCopy(torch::Tensor tensor, XlaEvent done) : tensor_(std::move(tensor)), done_(std::move(done)) {}

  bool ready() const { return done_.ready(); }
  // Waits for the copy and returns the tensor: contiguous, of the dtype torch_type() names.
  torch::Tensor wait(const Deadline& deadline = Deadline(kXlaWait)) const {
    done_.wait(deadline);
    return tensor_;
  }

 private:
  torch::Tensor tensor_;
  XlaEvent done_;
};

// An array in the memory of a device: a handle, whose copies stand for the same array. The memory is given back with
// the last handle, once the work that reads it is done.
class XlaBuffer {
 public:
  class State;

  XlaBuffer() = default;
  explicit XlaBuffer(std::shared_ptr<State> state) : state_(std::move(state)) {}

  bool defined() const { return state_ != nullptr; }
  const XlaShape& shape() const;
  // Returns the id of the device.
  int device() const;
  // Returns whether its memory has been given to a launch (donated) or erased.
  bool deleted() const;
  // Gives the memory back now. A later use is FailedPrecondition.
  void erase() const;
  // Returns the point at which its values are there.
  XlaEvent ready() const;

  // Begins to copy the values to the host.
  XlaHostCopy copy_to_host() const;
  // Copies the values to the host and waits for them.
  torch::Tensor to_host(const Deadline& deadline = Deadline(kXlaWait)) const { return copy_to_host().wait(deadline); }
  // Begins to copy it to another device of the client.
  XlaBuffer copy_to(int device) const;
  // Returns where the device has it. Unimplemented: the plugin does not tell.
  std::uintptr_t address() const;

  bool operator==(const XlaBuffer&) const = default;

  State& state() const;

 private:
  std::shared_ptr<State> state_;
};

// A copy to a device that has begun.
struct XlaUpload {
  XlaBuffer buffer;
  XlaEvent host_done;  // the point from which on the host's tensor may be written to
};

struct XlaClientOptions {
  // The options that the plugin takes, such as cpu_device_count of XLA's plugin for CPUs.
  XlaOptions options = {};
  // The processes that open their devices together, null for this one alone. The plugin gets their store, and unless it
  // is libtpu, which knows its pod itself, the options node_id and num_nodes.
  std::shared_ptr<XlaProcesses> processes = nullptr;
  // The longest that making the client may take.
  std::chrono::milliseconds limit = std::chrono::minutes(10);
};

struct XlaCompileOptions {
  int num_replicas = 1;
  // The devices of a replica, among which XLA divides the program by the shardings of its text.
  int num_partitions = 1;
  // The id of the device for partition p of replica r, at r * num_partitions + p. Empty: the client's own assignment,
  // or the first devices of a topology.
  std::vector<int> devices = {};
  // With true, Shardy divides the program (sdy.sharding); otherwise GSPMD does (mhlo.sharding).
  bool shardy = true;
  // XLA's flags for this program, without the dashes: {"xla_cpu_enable_fast_min_max", "false"}.
  std::map<std::string, std::string> flags = {};
  // The longest that the compilation may take.
  std::chrono::milliseconds limit = std::chrono::hours(1);
};

// The devices of a plugin. It lives as long as its buffers and executables.
class XlaClient : public std::enable_shared_from_this<XlaClient> {
 public:
  class State;

  // Opens the devices of a plugin. Errors are the plugin's, such as those of libtpu where there is no TPU.
  static XlaClientPtr create(XlaPluginPtr plugin, const XlaClientOptions& options = {});
  explicit XlaClient(std::unique_ptr<State> state);
  XlaClient(const XlaClient&) = delete;
  XlaClient& operator=(const XlaClient&) = delete;
  ~XlaClient();

  const XlaPlugin& plugin() const;
  // Returns "cpu", "tpu", "cuda".
  const std::string& platform() const;
  const std::string& platform_version() const;
  // Returns the number of this process among those whose devices the client knows.
  int process() const;
  // Returns how many processes drive these devices.
  int num_processes() const;
  // Returns the devices of all processes.
  const std::vector<XlaDevice>& devices() const;
  // Returns the ids of the devices of this process.
  const std::vector<int>& local_devices() const;
  // Returns the device of that id. NotFound lists the ids.
  const XlaDevice& device(int id) const;
  // Returns the figures of a local device's memory, or nothing if the plugin does not tell them.
  std::optional<XlaMemory> memory(int device) const;
  // Returns the plugin's choice of devices, by replica and partition as in XlaCompileOptions::devices.
  std::vector<int> default_devices(int num_replicas, int num_partitions) const;

  // Copies a tensor of the host to a device of this process. With `type`, which has to have the size of the dtype, the
  // bits become that type (ui64 from int64). NotFound: no such device. InvalidArgument: not a dense tensor of the host.
  XlaBuffer to_device(const torch::Tensor& tensor, int device, XlaType type = XlaType::kInvalid) const;
  // Begins to copy a tensor of the host to a device.
  XlaUpload upload(const torch::Tensor& tensor, int device, XlaHostMemory memory,
                   XlaType type = XlaType::kInvalid) const;

  // Compiles a module of StableHLO, as text. InvalidArgument: the text is wrong; the message has the line that the
  // plugin names.
  XlaExecutablePtr compile(const std::string& text, const XlaCompileOptions& options = {}) const;
  // Makes a program again from the bytes of XlaProgram::serialize(), with the options that it was compiled with, of
  // which the flags have no effect any more. The plugin has to be the same, of the same version. FailedPrecondition: it
  // was compiled for other devices than the options say. Others, which are the plugin's: the bytes are no such program.
  XlaExecutablePtr load(const std::string& bytes, const XlaCompileOptions& options = {}) const;

  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

// A place at which a program runs.
struct XlaSlot {
  int replica = 0;
  int partition = 0;
  int device = 0;  // its id
};

// Buffers for each slot: arguments or outputs.
using XlaLists = std::vector<std::vector<XlaBuffer>>;

// The results of a launch, before it has run.
struct XlaLaunch {
  XlaLists outputs;
  XlaEvent done;  // the point at which all slots have run, or one has failed
};

// A program that is ready to run.
class XlaExecutable {
 public:
  class State;

  explicit XlaExecutable(std::unique_ptr<State> state);
  XlaExecutable(const XlaExecutable&) = delete;
  XlaExecutable& operator=(const XlaExecutable&) = delete;
  ~XlaExecutable();

  // Returns what is known of the program: parameters, outputs, donated parameters, cost, memory, the optimised HLO.
  const XlaProgram& program() const;
  // Returns the places of this process at which it runs, in the order of a launch's lists.
  const std::vector<XlaSlot>& slots() const;

  // Begins to run the program: for each slot the arguments, on the slot's device. Returns without waiting for it where
  // the plugin can (XLA's plugin for CPUs runs small programs of one device at once). The buffers of donated parameters
  // are deleted by it. Arguments are checked before anything begins, because a replica that fails alone leaves the
  // others waiting for it within the device: InvalidArgument for a wrong number, shape, type or device, and for a
  // donated buffer that is there twice; FailedPrecondition for one that is deleted.
  XlaLaunch launch(const XlaLists& arguments) const;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace cohort
