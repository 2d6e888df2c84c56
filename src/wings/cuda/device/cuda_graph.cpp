// A graph is captured on a stream of its own, and given to the stream that is current where it is replayed. Only the
// capturing thread is held to what a capture allows, so that input goes on being copied meanwhile, and other replicas
// go on with theirs. Before LibTorch 2.1 every thread of the process is held to it. The segments share a pool of
// LibTorch's allocator.
#include "wings/cuda/device/cuda_graph.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <torch/version.h>

#include "base/fail.h"
#include "base/log.h"

namespace cohort {

namespace {

using Pool = decltype(at::cuda::graph_pool_handle());

// Before LibTorch 2.4 a graph knows LibTorch's own generator of the device alone, and one that is drawn from in a
// capture has to be told where the replayed kernels find its state.
template <typename Impl>
concept IsToldOfCaptures = requires(Impl& impl, int64_t* number) {
  impl.capture_prologue(number, number);
  impl.set_philox_offset_per_thread(impl.capture_epilogue());
};

// What one segment draws from such a generator.
class DrawnBySegment {
 public:
  DrawnBySegment(at::Generator generator, c10::Device device)
      : generator_(std::move(generator)),
        seed_(at::empty({1}, at::TensorOptions().dtype(at::kLong).device(device))),
        offset_(at::empty_like(seed_)) {}

  template <typename Impl = at::CUDAGeneratorImpl>
  void begin() {
    if constexpr (IsToldOfCaptures<Impl>) {
      own<Impl>().capture_prologue(static_cast<int64_t*>(seed_.data_ptr()), static_cast<int64_t*>(offset_.data_ptr()));
      begun_ = true;
    }
  }
  template <typename Impl = at::CUDAGeneratorImpl>
  void end() {
    if constexpr (IsToldOfCaptures<Impl>) {
      if (std::exchange(begun_, false)) numbers_ = own<Impl>().capture_epilogue();
    }
  }
  template <typename Impl = at::CUDAGeneratorImpl>
  void replay() {
    if constexpr (IsToldOfCaptures<Impl>) {
      if (numbers_ == 0) return;
      const std::lock_guard lock(generator_.mutex());
      const uint64_t offset = own<Impl>().philox_offset_per_thread();
      seed_.fill_(static_cast<int64_t>(own<Impl>().current_seed()));
      offset_.fill_(static_cast<int64_t>(offset));
      own<Impl>().set_philox_offset_per_thread(offset + numbers_);
    }
  }

 private:
  template <typename Impl>
  Impl& own() const {
    return *static_cast<Impl*>(generator_.unsafeGetGeneratorImpl());
  }

  at::Generator generator_;
  at::Tensor seed_;
  at::Tensor offset_;
  bool begun_ = false;
  uint64_t numbers_ = 0;  // how far the segment moves the offset
};

// Lets a graph know a generator, if it can be told. The newest versions see by themselves what is drawn from.
template <typename Graph>
void tell(Graph& graph, const at::Generator& generator) {
  if constexpr (requires { graph.register_generator_state(generator); }) graph.register_generator_state(generator);
}

template <typename Graph>
concept HoldsOneThread = requires(Graph& graph, Pool pool) {
  graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
};

template <typename Graph>
void begin_capture(Graph& graph, Pool pool) {
  if constexpr (HoldsOneThread<Graph>) graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
}

// An allocation or a wait of another thread would break a capture off at any time.
template <typename Graph>
void require_modes(c10::Device device) {
  if constexpr (!HoldsOneThread<Graph>) {
    fail<Unimplemented>("[device] work of ", device, " is captured as a graph with LibTorch 2.1 or newer, and this is ",
                        TORCH_VERSION, ", in which allocations and waits of other threads break a capture off; leave ",
                        "jit_compile and --use_cuda_graph unset");
  }
}

// Streams that threads capture on, of no use to anybody else. LibTorch's pool hands out the same 32 in turn, so that a
// copy of the input could be on a stream of it that captures.
class CaptureStreams {
 public:
  static CaptureStreams& of_process() {
    static auto* const streams = new CaptureStreams;  // threads that end late still give streams back
    return *streams;
  }

  at::cuda::CUDAStream take(c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    std::vector<at::cuda::CUDAStream>& free = free_[device];
    if (free.empty()) return make(device);
    const at::cuda::CUDAStream taken = free.back();
    free.pop_back();
    return taken;
  }
  void give_back(const at::cuda::CUDAStream& stream) {
    const std::lock_guard lock(mutex_);
    free_[stream.device_index()].push_back(stream);
  }

 private:
  static at::cuda::CUDAStream make(c10::DeviceIndex device) {
    const c10::cuda::CUDAGuard guard(device);
    cudaStream_t made = nullptr;
    C10_CUDA_CHECK(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return at::cuda::getStreamFromExternal(made, device);
  }

  std::mutex mutex_;
  std::map<c10::DeviceIndex, std::vector<at::cuda::CUDAStream>> free_;
};

// Has cuBLAS make the workspaces of the calling thread and of the backward thread for the stream. The first product in
// a capture would take them from the pool of that graph, and later graphs would use its memory.
void make_workspaces(const at::cuda::CUDAStream& stream) {
  const c10::cuda::CUDAStreamGuard guard(stream);
  const at::AutoGradMode gradients(true);
  const at::Tensor x = at::ones({8, 8}, at::TensorOptions().device(stream.device())).requires_grad_();
  at::linear(x, x, x.select(0, 0)).mm(x).sum().backward();
}

// Gives each thread its stream for each device, and the streams back when the thread ends.
class StreamsOfThread {
 public:
  StreamsOfThread() = default;
  StreamsOfThread(const StreamsOfThread&) = delete;
  StreamsOfThread& operator=(const StreamsOfThread&) = delete;
  ~StreamsOfThread() {
    for (const auto& [device, stream] : streams_) CaptureStreams::of_process().give_back(stream);
  }

  at::cuda::CUDAStream of(c10::DeviceIndex device) {
    const auto known = streams_.find(device);
    if (known != streams_.end()) return known->second;
    const auto taken = streams_.emplace(device, CaptureStreams::of_process().take(device)).first->second;
    make_workspaces(taken);
    return taken;
  }

 private:
  std::map<c10::DeviceIndex, at::cuda::CUDAStream> streams_;
};

// Returns the stream on which the calling thread captures. Libraries keep a workspace for every stream that they were
// ever called on, so it is always the same one.
at::cuda::CUDAStream capture_stream(c10::DeviceIndex device) {
  thread_local StreamsOfThread streams;
  return streams.of(device);
}

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(c10::Device device, std::vector<at::Generator> generators)
      : device_(device),
        generators_(std::move(generators)),
        pool_(at::cuda::graph_pool_handle()),
        stream_(capture_stream(device.index())) {}

  void begin() override {
    current_ = std::make_unique<Segment>();
    for (const at::Generator& generator : generators_) {
      tell(current_->graph, generator);
      if (IsToldOfCaptures<at::CUDAGeneratorImpl>) current_->drawn.emplace_back(generator, device_);
    }
    // Operations that were given to the thread's stream come before those that are replayed, and a first operation of
    // a library may still be on its way.
    at::cuda::CUDAEvent given;
    given.record(at::cuda::getCurrentCUDAStream(device_.index()));
    given.block(stream_);
    within_.emplace(stream_);
    begin_capture(current_->graph, pool_);
    for (DrawnBySegment& each : current_->drawn) each.begin();
  }

  void end() override {
    for (DrawnBySegment& each : current_->drawn) each.end();
    current_->graph.capture_end();
    within_.reset();
    segments_.push_back(std::move(current_));
  }

  void abandon() noexcept override {
    if (current_ == nullptr) return;
    try {
      for (DrawnBySegment& each : current_->drawn) each.end();
    } catch (const std::exception& error) {
      log().warn("[device] a generator stays in a capture that was given up: {}", error.what());
    }
    if (!end_capture()) (void)end_another_capture();
    within_.reset();
    current_.reset();
    // LibTorch takes no new graph into a pool whose last one is gone.
    if (segments_.empty()) pool_ = at::cuda::graph_pool_handle();
  }

  void replay(std::size_t segment) override {
    const c10::DeviceGuard guard(device_);
    Segment& own = *segments_[segment];
    for (DrawnBySegment& each : own.drawn) each.replay();
    own.graph.replay();
  }

 private:
  struct Segment {
    at::cuda::CUDAGraph graph;
    std::vector<DrawnBySegment> drawn;
  };

  // Returns whether LibTorch has ended the capture of its allocator and of its generators, too.
  bool end_capture() noexcept {
    try {
      current_->graph.capture_end();
      return true;
    } catch (const std::exception&) {
      (void)cudaGetLastError();  // so that what comes next is not blamed for it
      return false;
    }
  }

  // Of a capture that CUDA has invalidated, LibTorch's capture_end() ends CUDA's part alone, and throws. Its own part
  // ends with a valid capture, if an empty one, on the same stream.
  bool end_another_capture() noexcept {
    if (cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
      log().warn("[device] a capture that was given up cannot be ended: {}", cudaGetErrorString(cudaGetLastError()));
      return false;
    }
    return end_capture();
  }

  c10::Device device_;
  std::vector<at::Generator> generators_;
  Pool pool_;
  at::cuda::CUDAStream stream_;
  std::optional<c10::cuda::CUDAStreamGuard> within_;
  std::unique_ptr<Segment> current_;  // the one that is being captured
  std::vector<std::unique_ptr<Segment>> segments_;
};

}  // namespace

std::unique_ptr<DeviceGraph> make_cuda_graph(c10::Device device, const std::vector<at::Generator>& generators) {
  require_modes<at::cuda::CUDAGraph>(device);
  return std::make_unique<CudaGraph>(device, generators);
}

}  // namespace cohort
