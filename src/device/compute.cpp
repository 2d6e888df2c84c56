#include "device/compute.h"

#include <ATen/Context.h>

#include <atomic>
#include <cstdlib>

#include "base/fail.h"
#include "base/libtorch_compat.h"
#include "base/log.h"
#include "cohort/compute.h"
#include "device/backend.h"

namespace cohort {

namespace {

constexpr std::pair<int, int> kFirstWithTensorFloat32 = {8, 0};

// Whether the program has said if cuDNN searches.
std::atomic<bool> search_is_decided{false};

std::vector<PhysicalDevice> cards_here() {
  std::vector<PhysicalDevice> cards;
  for (const auto& backend : device_backends()) {
    for (int i = 0; backend->is_card() && i < backend->count(); ++i) {
      cards.push_back({.type = std::string(backend->type()), .index = i});
    }
  }
  return cards;
}

std::optional<std::string> environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

void require_cards(const ComputeOptions& options, const std::vector<PhysicalDevice>& cards) {
  const char* set = options.tensor_float_32   ? "tensor_float_32"
                    : options.cudnn_benchmark ? "cudnn_benchmark"
                    : !options.cudnn_enabled  ? "cudnn_enabled"
                                              : nullptr;
  if (set != nullptr && cards.empty()) {
    fail<InvalidArgument>("[device] ", set, " is set, but this process has no GPU, to which it would apply");
  }
}

void require_tensor_float_32(const std::vector<PhysicalDevice>& cards) {
  if (environment_value("NVIDIA_TF32_OVERRIDE") == "0") {
    fail<InvalidArgument>(
        "[device] tensor_float_32 is true, but NVIDIA_TF32_OVERRIDE=0 in the environment turns it off");
  }
  for (const PhysicalDevice& card : cards) {
    const DeviceDetails details = get_device_details(card);
    if (!details.compute_capability || *details.compute_capability >= kFirstWithTensorFloat32) continue;
    const auto [major, minor] = *details.compute_capability;
    fail<InvalidArgument>("[device] tensor_float_32 is true, but ", card.name(), " (", details.device_name,
                          ") has compute capability ", major, ".", minor, ", wanted 8.0 or more");
  }
}

void require_agreement(const ComputeOptions& options) {
  if (!options.cudnn_benchmark.value_or(false)) return;
  if (options.deterministic) {
    fail<InvalidArgument>("[device] cudnn_benchmark and deterministic are both true: which algorithm is the fastest ",
                          "differs from run to run, and so would the bits");
  }
  if (!options.cudnn_enabled) {
    fail<InvalidArgument>("[device] cudnn_benchmark is true, but cudnn_enabled is false: there is nothing to try");
  }
}

void say_what_is_deterministic(bool with_cards) {
  std::string text = "operations that have a form which repeats its bits take it (sums at repeated indices are slower)";
  if (with_cards) {
    text += c10::str(", those on GPUs that have none are errors, cuDNN takes algorithms that repeat without trying ",
                     "which one is the fastest, and CUBLAS_WORKSPACE_CONFIG is ",
                     environment_value("CUBLAS_WORKSPACE_CONFIG").value_or(""));
  }
  log().info("[device] deterministic: {}", text);
}

}  // namespace

struct ComputeScope::Switches {
  bool decided = search_is_decided;
  bool search = at::globalContext().benchmarkCuDNN();
  bool cudnn = at::globalContext().userEnabledCuDNN();
  bool products = at::globalContext().allowTF32CuBLAS();
  bool convolutions = at::globalContext().allowTF32CuDNN();
  bool repeats_cudnn = at::globalContext().deterministicCuDNN();
  bool repeats = at::globalContext().deterministicAlgorithms();
  bool warns_only = at::globalContext().deterministicAlgorithmsWarnOnly();
  bool fills = compat::fills_uninitialized();

  void set() const {
    at::Context& context = at::globalContext();
    search_is_decided = decided;
    context.setBenchmarkCuDNN(search);
    context.setUserEnabledCuDNN(cudnn);
    context.setAllowTF32CuBLAS(products);
    context.setAllowTF32CuDNN(convolutions);
    context.setDeterministicCuDNN(repeats_cudnn);
    context.setDeterministicAlgorithms(repeats, warns_only);
    compat::set_fills_uninitialized(fills);
  }
};

ComputeScope::ComputeScope(const ComputeOptions& options) : before_(std::make_unique<const Switches>()) {
  const std::vector<PhysicalDevice> cards = cards_here();
  require_cards(options, cards);
  require_agreement(options);
  if (options.tensor_float_32.value_or(false)) require_tensor_float_32(cards);
  Switches now = *before_;
  if (options.tensor_float_32) now.products = now.convolutions = *options.tensor_float_32;
  if (!options.cudnn_enabled) now.cudnn = false;
  if (options.cudnn_benchmark) {
    now.decided = true;
    now.search = *options.cudnn_benchmark;
  }
  if (options.deterministic) {
    if (!cards.empty()) {
      const std::string workspace = repeatable_workspace(environment_value("CUBLAS_WORKSPACE_CONFIG"));
      ::setenv("CUBLAS_WORKSPACE_CONFIG", workspace.c_str(), /*overwrite=*/1);  // cuBLAS and LibTorch read it
    }
    now.decided = true;
    now.search = now.warns_only = now.fills = false;
    now.repeats_cudnn = now.repeats = true;
    say_what_is_deterministic(!cards.empty());
  }
  decides_search_ = now.decided && !before_->decided;
  now.set();
}

// A strategy may have begun a search meanwhile.
ComputeScope::~ComputeScope() {
  Switches now = *before_;
  if (!decides_search_ && !now.decided) now.search = at::globalContext().benchmarkCuDNN();
  now.set();
}

void begin_convolution_search() {
  if (!search_is_decided) at::globalContext().setBenchmarkCuDNN(true);
}

void ConvolutionSearch::note(c10::IntArrayRef shape) {
  const std::lock_guard lock(mutex_);
  if (shapes_.size() > kMostShapes || !shapes_.insert(shape.vec()).second || shapes_.size() <= kMostShapes) return;
  if (search_is_decided || !at::globalContext().benchmarkCuDNN()) return;
  at::globalContext().setBenchmarkCuDNN(false);
  log().info(
      "[device] a model's inputs have had {} shapes, the last one {}: cuDNN no longer tries its algorithms on new ones",
      shapes_.size(), c10::str(shape));
}

std::string repeatable_workspace(const std::optional<std::string>& given) {
  constexpr const char* kLarge = ":4096:8";
  constexpr const char* kSmall = ":16:8";
  if (!given || *given == kLarge || *given == kSmall) return given.value_or(kLarge);
  fail<InvalidArgument>("[device] deterministic is set, but CUBLAS_WORKSPACE_CONFIG is \"", *given,
                        "\", with which cuBLAS does not repeat its bits; wanted ", kLarge, " or ", kSmall);
}

}  // namespace cohort
