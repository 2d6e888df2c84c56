// DeviceBackend: what the library asks of a kind of device, besides computing on it, which is LibTorch's. A back end is
// a folder of src/device and a row of the table in backends.cpp, or a wing's; nothing outside src/device (and NCCL's
// folder) names CUDA.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cohort/compute.h"
#include "cohort/device.h"
#include "device/device_graph.h"
#include "device/leaving.h"
#include "device/side_streams.h"
#include "ops/kernels/reach.h"

namespace cohort {

// A point in a stream's work. Thread-safe.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;

  // Makes what the calling thread computes on the device from now on wait for the point. `tensors`, which the stream
  // made, may be used and given up by that work. May return before the point is reached.
  virtual void wait(std::span<const torch::Tensor> tensors) const = 0;

  // Returns whether the point has been reached, without a wait.
  virtual bool reached() const = 0;
};

// Copies beside the device's other work, one after the other, and what is to be done with them first. One thread at a
// time.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;

  // Begins to copy a tensor of the host and returns the tensor on the device. Its values are there where the event of a
  // later record() has been waited for. The host's tensor may be given up at once, but not written to before that event
  // is reached.
  virtual torch::Tensor copy(const torch::Tensor& host) = 0;

  // Returns so many bytes of the host's memory, uint8 [bytes], from which copy() needs no help of the host
  // (page-locked). Making them is slow. Undefined if the device copies from any memory alike.
  virtual torch::Tensor make_staging(int64_t /*bytes*/) { return {}; }

  // Has the device do what `work` begins on it, behind the copies so far. Here, for devices that have it done when an
  // operation returns: calls it.
  virtual void compute(const std::function<void()>& work) { work(); }

  // Returns the point behind everything that has begun.
  virtual std::shared_ptr<const DeviceEvent> record() = 0;

  // Begins to copy a tensor of the device to one of the host, behind the work that the calling thread has given the
  // device. The device's tensor may be given up at once, but not written to; the values are there after synchronize().
  virtual void fetch(const torch::Tensor& tensor, const torch::Tensor& host) = 0;

  // Waits, on the host, until all copies that have begun are done, and what the calling thread has given the device.
  virtual void synchronize() = 0;
};

// A number that a device computes, on its way to the host. Thread-safe.
class ArrivingNumber {
 public:
  virtual ~ArrivingNumber() = default;

  // Returns it; waits until it is there.
  virtual double value() const = 0;
};

// What an allocator that keeps freed memory has of a device's memory, in bytes, and how often it found none.
struct AllocatorFigures {
  int64_t in_use = 0;         // the memory of tensors
  int64_t peak = 0;           // the most of it so far
  int64_t reserved = 0;       // all that it has, in use or kept
  int64_t peak_reserved = 0;  // the most of it so far
  int64_t retries = 0;        // times that it gave back what it kept to find a piece
  int64_t failures = 0;       // times that there was none
};

// Stateless and thread-safe.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  // Returns the type in the names of devices, such as "GPU".
  virtual std::string_view type() const = 0;
  // Returns LibTorch's name of the type.
  virtual torch::DeviceType torch_type() const = 0;
  // Returns how many devices this process can use.
  virtual int count() const = 0;
  // Returns what LibTorch calls a device; the index is below count().
  virtual torch::Device device(int index) const = 0;
  // Returns whether the device is the host: a pointer reaches its tensors, and an operation is done when it returns.
  virtual bool is_host() const = 0;
  // Returns whether its devices are GPUs, to which LibTorch's switches for cuDNN and TensorFloat-32 apply, and whose
  // convolutions are faster with the channels last in memory.
  virtual bool is_card() const { return false; }
  // Returns whether LibTorch has a kernel for all of attention there.
  virtual bool fuses_attention() const { return false; }
  // Returns what is known of a device.
  virtual DeviceDetails details(torch::Device /*device*/) const { return {}; }
  // Returns the processors of the host that are nearest to a device, ascending; empty: all are alike, or it is not
  // known.
  virtual std::vector<int> near_processors(torch::Device /*device*/) const { return {}; }
  // Returns whether LibTorch trains in that dtype there.
  virtual bool trains_in(torch::ScalarType dtype) const = 0;
  // Returns which kernels reach the memory of its tensors.
  virtual kernels::Reach kernels() const { return kernels::Reach::kNone; }
  // Calls what begins such a kernel, or is one, on memory of these tensors of one device. Here: and nothing else.
  virtual void begin_kernel(std::span<const torch::Tensor> /*tensors*/, const std::function<void()>& kernel) const {
    kernel();
  }
  // Returns the figures of a device's memory at this moment.
  virtual MemoryInfo memory(torch::Device device) const = 0;
  // Returns the figures of the allocator that keeps what is freed on the device; nothing if it has none, or no figures.
  virtual std::optional<AllocatorFigures> allocator(torch::Device /*device*/) const { return std::nullopt; }

  // Prepares the process for training on such devices; from the second call on, nothing happens.
  virtual void prepare() const = 0;
  // Makes a generator of random numbers on the device, with the seed of LibTorch's own one (torch::manual_seed).
  virtual at::Generator make_generator(torch::Device device) const = 0;
  // Begins to bring a number of the device, of one element, to the host, behind the work that the calling thread has
  // given the device. Here, for devices that have it done when an operation returns: it is there at once.
  virtual std::shared_ptr<const ArrivingNumber> fetch(const torch::Tensor& number) const;
  // Makes a stream for copies to the device and from it.
  virtual std::unique_ptr<DeviceStream> make_stream(torch::Device device) const = 0;
  // Makes a flat tensor of the host, not initialised, that copies to the devices and from them reach without a stop in
  // other memory (pinned). Here, for devices that have no such memory: any.
  virtual torch::Tensor host_memory(int64_t size, torch::ScalarType dtype) const;
  // Makes streams for work beside what threads give these devices, which are different ones of this back end; null:
  // it has none.
  virtual std::unique_ptr<SideStreams> make_side_streams(const std::vector<torch::Device>& /*devices*/) const {
    return nullptr;
  }

  // Returns whether work of the device can be captured and given to it again.
  virtual bool captures() const { return false; }
  // Makes a graph of a device without segments; null where nothing can be captured. `generators` are those that its
  // work may draw from, besides LibTorch's own one of the device.
  virtual std::unique_ptr<DeviceGraph> make_graph(torch::Device /*device*/,
                                                  const std::vector<at::Generator>& /*generators*/) const {
    return nullptr;
  }

  // Returns tensors of one of its devices as they are behind the work that the calling thread has given the device
  // (device/leaving.h). Here they are copied at once.
  virtual std::unique_ptr<LeavingTensors> leave(const std::vector<torch::Tensor>& tensors) const;

  // Returns whether operations are recorded instead of done. Such work begins at flush(), or when a value is read.
  virtual bool records() const { return false; }
  // Begins the work that the calling thread has recorded for the device. Every training step ends with it, and every
  // function that is given to Strategy::run().
  virtual void flush(torch::Device /*device*/) const {}

  // Returns whether the recorded work of several devices is begun together, as one program in which sums over the
  // devices are operations (record::all_reduce). Training steps and functions of Strategy::run() then end with
  // flush_together(), by one thread, when all replicas have come there.
  virtual bool joins() const { return false; }
  virtual void flush_together(std::span<const torch::Device> /*devices*/) const {}

  // Announces so many steps, each of which ends with a flush_together(): as far as they are alike, they are held back
  // and begin as one loop on the devices, or as several, whose steps have at most input_bytes of input on a device.
  // What was held back before begins, too. Less than 2: each step begins by itself.
  virtual void gather_steps(std::span<const torch::Device> /*devices*/, int64_t /*steps*/,
                            int64_t /*input_bytes*/) const {}
  // Returns how many steps are held back.
  virtual int64_t gathered_steps() const { return 0; }

  // Takes the parameters and buffers of a module to the device, in the layout that is fast there (device/layout.h).
  virtual void move(torch::nn::Module& module, torch::Device device) const;

  // Seeds the stream of what draws on the device without a generator, where LibTorch's own seed is not all there is.
  virtual void seed(torch::Device /*device*/, uint64_t /*seed*/) const {}
};

// What a wing adds: a back end, made once; null: this build lacks it.
struct BackendMaker {
  std::unique_ptr<DeviceBackend> (*make)();
};
// What takes notice of set_soft_device_placement(), for operations that devices of a wing lack.
struct SoftPlacement {
  void (*set)(bool on);
};

// Returns the back ends of this build, in the order in which devices are listed. The first one is the host's.
const std::vector<std::unique_ptr<DeviceBackend>>& device_backends();

// Puts a back end in the table, in the place of the one of its type if there is one. Only at the start of a program,
// while nobody has asked for its devices; the tests' stand-in for GPUs comes in by it.
void put_device_backend(std::unique_ptr<DeviceBackend> backend);

// Takes notice of devices that a back end has since the machine was first asked for its devices. Thread-safe.
void note_new_devices();

// Returns the back end of a device. Unimplemented: this build has none for it.
const DeviceBackend& backend_of(torch::Device device);
// Returns the back end of a type in the names of devices, or null if this build has none.
const DeviceBackend* find_backend(std::string_view type);
// Begins a kernel of this library's on the device of the tensors, of which it uses the memory, behind what the calling
// thread has given the device: now, and in each run of what its tracer notes.
void begin_kernel(std::span<const torch::Tensor> tensors, const std::function<void()>& kernel);

// Returns whether work of a device can be captured; false for one that no back end has.
bool captures(torch::Device device);
// Returns whether NCCL can carry the tensors of a device.
bool is_gpu(torch::Device device);

// Forgets which devices are visible, how they are split, and that they were used. Tests use this.
void reset_devices();

}  // namespace cohort
