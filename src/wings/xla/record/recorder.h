// The recorder: LibTorch operations on tensors of the device type XLA are noted in a graph (graph.h) instead of done.
// Autograd runs above it unchanged; its backward is recorded on LibTorch's autograd thread of the device, so what is
// recorded belongs to the device and not to a thread.
//
//   record::install_recorder({.devices = 1});
//   record::Recording& recording = record::recording_of({torch::kXLA, 0});
//   torch::Tensor w = host.to(torch::Device(torch::kXLA, 0)).requires_grad_();
//   loss(w).backward();
//   record::Captured step = recording.capture({w.grad()});       // the program, with its inputs
//   std::string text = record::to_stablehlo(*step.program, {});  // stablehlo/lower.h
//
// With a runner (set_runner), work is done at flush(), or when a value is read.
#pragma once

#include <torch/types.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tracer.h"
#include "wings/xla/record/runner.h"
#include "wings/xla/record/stablehlo/lower.h"

namespace cohort::record {

class Cell;
class FunctionRecording;

// What was to be done has no place in a function that is recorded, such as reading a value.
class NotRecordable : public NotTraceable {
 public:
  using NotTraceable::NotTraceable;
};

struct RecorderOptions {
  // How many devices xla:0, xla:1, ... exist. LibTorch starts an autograd thread for each at the process's first
  // backward.
  int devices = 8;
  // Nothing that is recorded has a gradient. Then backwards may have run before, and a recorder that is there already
  // serves, however many devices it has.
  bool for_inference = false;
};

// Registers the recorder's kernels, guard and operations with LibTorch. That is for the whole process and cannot be
// undone; until this is called, nothing of the recorder exists in it. From the second call on only the number of
// devices is compared. FailedPrecondition: more devices than at the first call, or a backward of this process ran
// before, after which LibTorch takes no devices; call this at the start of the program. Thread-safe.
void install_recorder(const RecorderOptions& options = {});

// Sets what does the recorded work of all devices; null: nothing does, and values cannot be read.
void set_runner(std::shared_ptr<GraphRunner> runner);
std::shared_ptr<GraphRunner> runner();

// Lets operations that cannot be recorded run on the host, with a warning that names each operation once. Otherwise,
// and at first, they are an error (Unimplemented). Needs a runner.
void set_soft_placement(bool enabled);
bool soft_placement();

// Sets how the programs that are compiled from now on multiply. At first it is kDefault. Thread-safe.
void set_matmul_precision(MatmulPrecision precision);
MatmulPrecision matmul_precision();

// Sets how many programs the process keeps that nobody else holds: of what was captured, and of what was compiled. At
// first kKeptPrograms. Thread-safe.
inline constexpr std::size_t kKeptPrograms = 256;
void set_kept_programs(std::size_t most);
std::size_t kept_programs();

// What is recorded for one device. Thread-safe; tensors follow LibTorch's rules.
class Recording {
 public:
  Recording(int device, ProgramCache& cache);
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording();

  int device() const { return device_; }

  // Begins all work that living tensors of this device wait for, as one program. Nothing pending: does nothing.
  // FailedPrecondition: there is no runner, the device is being captured (Capturing), or a sum over replicas is waited
  // for, which flush_together() begins.
  void flush();

  // Returns the program that computes the tensors' values, without running it, and what it needs. An output may take
  // the memory of donated[i], a tensor of which only the value before the recording is read; donated may be empty.
  Captured capture(std::span<const torch::Tensor> outputs, std::span<const Value> donated = {});

  // Returns how many tensors that live have a value which is not computed yet.
  std::size_t pending() const;

  // Sets the state of the device's random numbers: dropout, uniform_() and the like, where no generator is given. The
  // stream is THREE_FRY's, the same on every platform, and differs between the replicas of a program (replica_id). The
  // state is an input and an output of every program that draws. torch::manual_seed() calls it with its seed plus the
  // index of the device.
  void manual_seed(uint64_t seed);
  // Returns the state, an int64 tensor of two elements on the device: key and counter.
  torch::Tensor random_state();

  // While one lives, flush() and reading values are errors, because a value does not exist when a function is recorded.
  class Capturing {
   public:
    Capturing(Recording& recording, std::string what);
    Capturing(const Capturing&) = delete;
    Capturing& operator=(const Capturing&) = delete;
    ~Capturing();

   private:
    Recording& recording_;
  };

 private:
  friend class Cell;
  friend class Together;
  friend torch::Tensor all_reduce(const torch::Tensor& tensor);
  friend class Plan;
  friend class FunctionRecording;
  friend torch::Tensor fetch(const torch::Tensor& tensor);

  // A cell whose value is to be computed.
  struct Pending {
    Cell* cell = nullptr;
    Value value;
    std::shared_ptr<Node> donor;
  };
  // Pending work as a program with its inputs.
  struct Work {
    std::vector<Pending> pending;
    Captured captured;
  };
  std::vector<Pending> collect();
  // Nothing pending: a work without a program.
  Work prepare();
  std::vector<std::shared_ptr<DeviceData>> inputs_of(GraphRunner& runner, const Captured& captured);
  // Gives the results to the tensors that waited for them.
  void finish(const Work& work, const std::vector<std::shared_ptr<DeviceData>>& results);
  std::shared_ptr<DeviceData> place_input(GraphRunner& runner, const Value& leaf) const;
  void require_running(const std::string& what) const;
  // A tensor is read or written: tells the function that is being recorded (function_recording.h).
  void note_use(Cell& cell);
  // Returns whether what this thread makes belongs to the function that is being recorded.
  bool is_traced_here() const;
  // Returns the state at the beginning of the stream, on the host.
  torch::Tensor first_state() const;

  const int device_;
  mutable std::recursive_mutex mutex_;
  std::map<uint64_t, Cell*> cells_;  // those that live, in the order in which they were made
  uint64_t next_cell_ = 0;
  std::string capturing_;               // what is being captured, or empty
  FunctionRecording* trace_ = nullptr;  // the function that is being recorded, or null
  uint64_t seed_ = 0;
  torch::Tensor random_state_;               // undefined until something draws
  std::vector<std::shared_ptr<Node>> sums_;  // the sums over replicas since the last flush_together()
  ProgramCache& cache_;
  // The numbers of the last runs, by program: most do not change from step to step.
  struct Numbers {
    torch::Tensor host;
    std::shared_ptr<DeviceData> data;
  };
  Recent<std::pair<std::shared_ptr<const Program>, int>, Numbers> numbers_;
};

// Returns the recording of a device of the type XLA; it lives until the end of the process. FailedPrecondition: the
// recorder is not installed. InvalidArgument: another type of device or no such index.
Recording& recording_of(torch::Device device);

// Returns whether the tensor is recorded.
bool is_recorded(const torch::Tensor& tensor);
// Returns the tensor's value in the graph. InvalidArgument: the tensor is not recorded.
Value value_of(const torch::Tensor& tensor);
// Makes a tensor of a value, or gives the value to a tensor of the same type, which may be a view.
torch::Tensor make_tensor(const Value& value, torch::Device device);
void assign(const torch::Tensor& tensor, const Value& value);
// Makes a tensor without dimensions of a number that may change from run to run of the program.
torch::Tensor make_number(const at::Scalar& number, torch::ScalarType dtype, torch::Device device);
// Makes a tensor whose value the caller of a captured program fills in.
torch::Tensor make_parameter(const TensorType& type, torch::Device device, std::string name = "");
// Names a tensor, such as "layer3.conv1.weight". Operations that read it, and those that follow, belong to the module
// "layer3.conv1" in messages and in the program's text.
void set_name(const torch::Tensor& tensor, std::string_view name);
// Copies a tensor of the host to a device, as to() does, which begins at once. Unlike to() it never has pending work,
// so a thread that brings the input of the next step does not change the program of this one.
torch::Tensor put(const torch::Tensor& host, torch::Device device);
// Moves a tensor of the host to a device, in place: modules hold parameters in several places, and LibTorch's
// set_data() and Module::to() refuse this change of type. requires_grad() stays.
void move_in_place(torch::Tensor& tensor, torch::Device device);

// Returns the sum over all replicas of the program, in every replica. Differentiable it is not: use it on gradients.
torch::Tensor all_reduce(const torch::Tensor& tensor);
// Divides the tensor among the cores of its replica, in so many tiles in each dimension, and its gradient likewise. The
// value stays the same; sizes need not divide. The product of the numbers is that of the cores, which the runner
// checks, or 1: every core has all of it. Differentiable. InvalidArgument: the tensor is not recorded, or has another
// number of dimensions.
torch::Tensor shard(const torch::Tensor& tensor, const std::vector<int64_t>& tiles);
// Begins all pending work of several devices, each of which is a replica, as one program with one launch. Sums over the
// replicas (all_reduce) are those of these devices. Where the devices' programs differ (shares of different sizes),
// each device runs its own: what is to be summed is fetched, summed on the host in the order of the devices, and placed
// again, which is slower and the same sum. FailedPrecondition: the replicas wait for different sums; the message names
// the first that differs from device 0's.
void flush_together(std::span<const torch::Device> devices);
// Announces steps: so many calls of flush_together() with these devices follow. They are held back while they are runs
// of the same program and begin as loops (gathering.h has when, and input_bytes); less than 2: no longer. What was held
// back so far begins first, and before steps what is pending on the devices, which is no part of the first one then.
void gather_steps(std::span<const torch::Device> devices, int64_t steps, int64_t input_bytes);
// Returns how many steps are held back.
int64_t gathered_steps();
// Returns a tensor's value on the host; begins and waits for the work that it needs.
torch::Tensor fetch(const torch::Tensor& tensor);

}  // namespace cohort::record
