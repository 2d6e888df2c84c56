// The recorder is one for the process, because LibTorch's tables of kernels are. Nothing of it exists before
// install_recorder().
#include "wings/xla/record/recorder.h"

#include <ATen/Functions.h>
#include <torch/library.h>

#include <atomic>

#include "base/fail.h"
#include "wings/xla/record/call.h"
#include "wings/xla/record/cell.h"
#include "wings/xla/record/gathering.h"
#include "wings/xla/record/generator.h"
#include "wings/xla/record/guard.h"
#include "wings/xla/record/kernels.h"

namespace cohort::record {

namespace {

// Views, by LibTorch's names. All have the tensor that they look at as their first argument.
constexpr const char* kViews[] = {
    "_reshape_alias", "_unsafe_view",     "diagonal", "expand",      "permute",      "select.int", "slice.Tensor",
    "split.Tensor",   "split_with_sizes", "squeeze",  "squeeze.dim", "squeeze.dims", "t",          "transpose.int",
    "unbind.int",     "unfold",           "unsqueeze"};

struct Recorder {
  std::mutex mutex;
  ProgramCache cache;
  std::vector<std::unique_ptr<Recording>> recordings;
  std::vector<std::unique_ptr<torch::Library>> libraries;
  std::shared_ptr<GatheringRunner> runner;
  std::atomic<bool> installed = false;
  std::atomic<bool> soft_placement = false;
  std::atomic<MatmulPrecision> precision = MatmulPrecision::kDefault;
  std::atomic<std::size_t> kept_programs = kKeptPrograms;
};

// It is never destroyed: tensors may outlive everything else.
Recorder& recorder() {
  static Recorder& one = *std::make_unique<Recorder>().release();
  return one;
}

// Returns whether this version of LibTorch has the operation and does not make it of others above autograd: with a
// kernel of ours such a one would have no gradient.
bool is_recordable(const std::string& name) {
  const std::size_t dot = name.find('.');
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  const auto op = c10::Dispatcher::singleton().findSchema({"aten::" + name.substr(0, dot), overload});
  return op && !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

std::string in_place_name(const std::string& name) {
  const std::size_t dot = std::min(name.find('.'), name.size());
  return name.substr(0, dot) + "_" + name.substr(dot);
}

template <auto kKernel>
void register_boxed(torch::Library& aten, const std::string& name) {
  if (is_recordable(name)) aten.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<kKernel>());
}

void register_with_libtorch(Recorder& state) {
  const auto open = [&](const char* ns, c10::DispatchKey key) -> torch::Library& {
    state.libraries.push_back(
        std::make_unique<torch::Library>(torch::Library::IMPL, ns, c10::make_optional(key), __FILE__, __LINE__));
    return *state.libraries.back();
  };
  register_autocast(open);
  open("_", c10::DispatchKey::XLA).fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_call>());
  torch::Library& aten = open("aten", c10::DispatchKey::XLA);
  register_kernels(aten);
  register_random(aten);
  register_statistics(aten);
  for (const char* view : kViews) register_boxed<&record_view>(aten, view);
  for (const auto rows : all_operations()) {
    for (const OperationInfo& row : rows) {
      if (row.recorded_elsewhere) continue;
      register_boxed<&record_call>(aten, row.name);
      register_boxed<&record_call>(aten, in_place_name(row.name));
      if (row.out_name != nullptr) register_boxed<&record_call>(aten, row.out_name);
    }
  }
}

// LibTorch starts its autograd threads at the first backward of the process, for the devices that there are then.
void require_autograd_threads() {
  const at::AutoGradMode enable(true);
  const torch::Tensor probe = at::ones({}, torch::Device(c10::DeviceType::XLA, 0)).set_requires_grad(true);
  try {
    probe.mul(probe).backward();
  } catch (const c10::Error& error) {
    fail<FailedPrecondition>(
        "[record] install_recorder() came after the first backward of this process, after which LibTorch "
        "takes no more devices; call it at the start of the program (",
        error.what_without_backtrace(), ")");
  }
}

}  // namespace

void install_recorder(const RecorderOptions& options) {
  Recorder& state = recorder();
  const std::scoped_lock lock(state.mutex);
  if (options.devices < 1) fail<InvalidArgument>("[record] devices is ", options.devices, ", wanted at least 1");
  if (options.for_inference && state.installed) return;
  if (!state.recordings.empty()) {
    const auto known = static_cast<int>(state.recordings.size());
    if (options.devices > known) {
      fail<FailedPrecondition>("[record] install_recorder() got ", options.devices, " devices after a call with ",
                               known, "; the first call decides how many there are");
    }
    require_autograd_threads();
    return;
  }
  for (int i = 0; i < options.devices; ++i) state.recordings.push_back(std::make_unique<Recording>(i, state.cache));
  register_guard(options.devices);
  register_with_libtorch(state);
  state.installed = true;
  follow_manual_seed(options.devices);
  if (!options.for_inference) require_autograd_threads();
}

void set_runner(std::shared_ptr<GraphRunner> runner) {
  Recorder& state = recorder();
  auto gathering = std::dynamic_pointer_cast<GatheringRunner>(runner);
  if (gathering == nullptr && runner != nullptr) gathering = std::make_shared<GatheringRunner>(std::move(runner));
  const std::scoped_lock lock(state.mutex);
  if (state.runner != nullptr) state.runner->gather({});
  state.runner = std::move(gathering);
}

std::shared_ptr<GraphRunner> runner() {
  Recorder& state = recorder();
  const std::scoped_lock lock(state.mutex);
  return state.runner;
}

void gather_steps(std::span<const torch::Device> devices, int64_t steps, int64_t input_bytes) {
  const auto runs = std::dynamic_pointer_cast<GatheringRunner>(runner());
  if (runs == nullptr) return;
  runs->gather({});
  if (steps < 2) return;
  flush_together(devices);
  GatheredLaunches launches{.steps = steps, .input_bytes = input_bytes};
  for (const torch::Device device : devices) launches.devices.push_back(device.index());
  runs->gather(std::move(launches));
}

int64_t gathered_steps() {
  const auto runs = std::dynamic_pointer_cast<GatheringRunner>(runner());
  return runs == nullptr ? 0 : runs->gathered();
}

void set_soft_placement(bool enabled) {
  recorder().soft_placement = enabled;
}

bool soft_placement() {
  return recorder().soft_placement;
}

void set_matmul_precision(MatmulPrecision precision) {
  recorder().precision = precision;
}

MatmulPrecision matmul_precision() {
  return recorder().precision;
}

void set_kept_programs(std::size_t most) {
  recorder().kept_programs = most;
}

std::size_t kept_programs() {
  return recorder().kept_programs;
}

Recording& recording_of(torch::Device device) {
  Recorder& state = recorder();
  if (!state.installed)
    fail<FailedPrecondition>("[record] nothing can be recorded for ", device, " before install_recorder()");
  const auto count = static_cast<int>(state.recordings.size());
  if (device.type() != c10::DeviceType::XLA || device.index() >= count) {
    fail<InvalidArgument>("[record] got the device ", device, ", wanted one of xla:0 to xla:", count - 1);
  }
  return *state.recordings[static_cast<std::size_t>(std::max<int>(device.index(), 0))];
}

torch::Tensor all_reduce(const torch::Tensor& tensor) {
  const Value value = value_of(tensor);
  const Value sum = make_node(kAllReduceOp, {value}, value.type());
  Recording& recording = cell_of(tensor).recording();
  const std::scoped_lock lock(recording.mutex_);
  recording.sums_.push_back(sum.node);
  return make_tensor(sum, tensor.device());
}

}  // namespace cohort::record
