// XlaStrategy and TPUStrategy: training on the devices of an XLA plugin (libtpu on TPU VMs, XLA's own plugins for CPUs
// and CUDA). LibTorch's operations are recorded, and a step runs as one program on all replicas; see docs/tpu.md.
//
//   cohort::TPUStrategy strategy(std::make_shared<cohort::TPUClusterResolver>("local"));
//   cohort::XlaStrategy other({.plugin = "cpu", .num_devices = 4});
//
// Make the strategy before the first backward of the process: LibTorch learns of such devices at its first one. A
// process has the devices of one plugin, opened with one set of options.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/cluster/cluster_resolver.h"
#include "cohort/cluster/tpu_resolver.h"
#include "cohort/cluster/tpu_topology.h"
#include "cohort/strategy.h"

namespace cohort {

struct XlaStrategyOptions {
  // The plugin: the path of a shared library, or the name of one that is found ("tpu", "cuda", "cpu"). Empty: the first
  // that is found. NotFound says where was looked.
  std::string plugin;
  // The number of devices, from the first one on. 0: all devices. InvalidArgument: there are fewer.
  int num_devices = 0;
  // The devices that a replica consists of, its cores, which follow each other; XLA divides its program among them. 0:
  // as many as input_partition_dims has parts. InvalidArgument: num_devices is no multiple of it.
  int num_cores_per_replica = 0;
  // What the plugin takes, as name=value,name=value. XLA's plugin for CPUs has as many devices as cpu_device_count
  // says, which is num_devices where it is not given.
  std::string plugin_options;
  // How float32 is multiplied, in products and convolutions: "default" is the device's own way, on TPUs one pass in
  // bfloat16, as in TensorFlow; "high" is three passes; "highest" is float32, on TPUs six passes. Plugins for CPUs
  // compute in float32 with all of them. FailedPrecondition: another strategy of this process has another one.
  std::string matmul_precision = "default";
  // The parts in each dimension in which fit(), evaluate() and predict() divide the inputs of a model, such as
  // {1, 1, 2, 2} for height and width of images (NCHW); an input with another number of dimensions is on every core.
  // Empty: nothing is divided. InvalidArgument: their product is not the number of cores.
  std::vector<int64_t> input_partition_dims = {};
  // The same for evaluate() and predict(); empty: input_partition_dims.
  std::vector<int64_t> eval_input_partition_dims = {};
  // The longest wait of a replica for the others.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // The most bytes of input that the steps of one launch may have on a device, where several steps are one
  // (steps_per_loop, steps_per_execution, run_loop). Steps with more are several launches. InvalidArgument: it is less
  // than 1.
  int64_t loop_input_bytes = int64_t{256} << 20;
  // The most compiled programs that the process keeps. Beyond them the one that was launched longest ago is given up,
  // and compiled again when it comes again. Strategies of a process share them, and the one that was made last says how
  // many. InvalidArgument: it is less than 1.
  int64_t kept_programs = 256;
};

// Synchronous data parallelism over the devices of a plugin, in one process: a copy of every variable on each.
// Gradients are summed within the step's program. Steps whose shares have different sizes, as in a short last batch,
// sum them on the host, which is slower. FailedPrecondition: another plugin is open in this process, or the same with
// another of these options; a backward came before; or another strategy lives that gives a replica's device other
// cores.
//
// Replicas may have several cores. num_replicas_in_sync() counts replicas. Every core has all variables and runs all
// operations, each on its part of the values that are divided; XLA divides what follows from
// experimental_split_to_logical_devices() and experimental_replicate_to_logical_devices(), and exchanges borders and
// sums. These change no value and are differentiable; a gradient is divided likewise.
class XlaStrategy : public Strategy {
 public:
  explicit XlaStrategy(const XlaStrategyOptions& options = {});

  // Returns the number of cores of each replica.
  int num_cores_per_replica() const;

  // Returns the tensor where replicas have one core. InvalidArgument: there is no such core, or replicas
  // have several cores, all of which run the same program; TensorFlow refuses it for such programs, too.
  torch::Tensor experimental_assign_to_logical_device(const torch::Tensor& tensor, int logical_device_id) const;

 protected:
  explicit XlaStrategy(std::shared_ptr<StrategyCore> core) : Strategy(std::move(core)) {}
};

// Opens the TPU that a resolver finds (null: TPUClusterResolver()) and returns where its cores are, as
// tf.tpu.experimental.initialize_tpu_system does. `plugin` and `plugin_options` are as in TPUStrategyOptions. A plugin
// that tells no coordinates has its devices in a row. Errors without a TPU are libtpu's, at once. On a pod all
// processes call it, and it returns when they are there; the next TPUStrategy goes on with the membership that was
// entered here.
TpuTopology tpu_initialize(const std::shared_ptr<TPUClusterResolver>& resolver = nullptr,
                           const std::string& plugin = "tpu", const std::string& plugin_options = "",
                           const MembershipOptions& membership = {});

struct TPUStrategyOptions {
  std::string plugin = "tpu";                // as XlaStrategyOptions::plugin
  int num_devices = 0;                       // as XlaStrategyOptions::num_devices
  std::string plugin_options;                // as XlaStrategyOptions::plugin_options
  std::string matmul_precision = "default";  // as XlaStrategyOptions::matmul_precision
  // The cores of each replica. Without it they are, where replicas have one core, the first num_devices in their order,
  // else blocks of computation_shape_of(). InvalidArgument: it is for other cores than those of this process.
  std::optional<DeviceAssignment> device_assignment = std::nullopt;
  std::vector<int64_t> input_partition_dims = {};                // as XlaStrategyOptions::input_partition_dims
  std::vector<int64_t> eval_input_partition_dims = {};           // as XlaStrategyOptions::eval_input_partition_dims
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // the longest wait of a replica for the others
  int64_t loop_input_bytes = int64_t{256} << 20;                 // as XlaStrategyOptions::loop_input_bytes
  int64_t kept_programs = 256;                                   // as XlaStrategyOptions::kept_programs
  // On a pod: the deadline of the start, heartbeats and security of its processes. The strategy sets `info` itself.
  MembershipOptions membership = {};
  // On a pod: how long after a process is lost a launch may keep this one that cannot end without it. Then this process
  // ends with status 1, because no error comes out of the plugin. 0: never.
  std::chrono::milliseconds lost_host_limit = std::chrono::seconds(30);
};

// The same as XlaStrategy on the TPU that a resolver finds, by libtpu: in this process, or on a pod in all processes
// that the resolver names, each of which runs the same program. Replicas are numbered process by process, input is
// divided among the processes, and variables start as the chief's, as in MultiWorkerMirroredStrategy. Before each
// launch the processes agree on its program; FailedPrecondition names two that differ, and the first operation in which
// they do. When a process is lost, or its program fails, the others throw Unavailable with its name.
class TPUStrategy : public XlaStrategy {
 public:
  // Null: TPUClusterResolver(). Errors without a TPU are libtpu's, at once.
  explicit TPUStrategy(const std::shared_ptr<TPUClusterResolver>& resolver = nullptr,
                       const TPUStrategyOptions& options = {});
};

}  // namespace cohort
