// Convolutions, the windows that they and poolings move over an input, and half precision on CPUs: oneDNN computes some
// of these wrongly (docs/installing.md).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/types.h>

#include <optional>
#include <utility>

#include "base/libtorch_compat.h"

namespace cohort {

// The zeros around the input of a window, as Keras' valid, same and causal have them.
enum class Pads { kNone, kAround, kBefore };

// A convolution or a pooling along one dimension.
struct WindowShape {
  int64_t size = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  Pads padding = Pads::kNone;

  // Returns how many inputs lie under the window, from the first to the last.
  int64_t reach() const { return (size - 1) * dilation + 1; }
  // Returns the number of outputs; -1 for -1.
  int64_t output(int64_t input) const;
  // Returns how many zeros stand before and after.
  std::pair<int64_t, int64_t> pads(int64_t input) const;
};

struct Window2 {
  WindowShape height;
  WindowShape width;
};

// Describes a convolution, one number for each spatial dimension.
struct ConvolutionSizes {
  torch::IntArrayRef image;  // the input; for a transposed convolution the output without padding
  torch::IntArrayRef kernel, stride, dilation;
};

// Returns whether oneDNN may compute a convolution of these sizes wrongly in half precision.
inline bool is_unsafe_in_half(const ConvolutionSizes& sizes, int64_t groups, bool transposed = false) {
  if (sizes.image.size() > 2) return true;
  for (std::size_t i = 0; i < sizes.image.size(); ++i) {
    const bool dilated = sizes.dilation[i] > 1 && (transposed || sizes.kernel[i] == 1);
    if (dilated || sizes.image[i] < sizes.stride[i]) return true;
  }
  return groups > 1 && sizes.stride.front() != sizes.stride.back();
}

// Returns the half-precision type in which the CPU would convolve x. Returns nothing for other types and devices.
inline std::optional<c10::ScalarType> half_on_cpu(const torch::Tensor& x) {
  if (!x.device().is_cpu() || x.scalar_type() == torch::kDouble) return std::nullopt;
  if (const auto half = compat::Autocast::in_force(c10::DeviceType::CPU)) return half;
  const bool is_half = x.scalar_type() == torch::kBFloat16 || x.scalar_type() == torch::kHalf;
  return is_half ? std::optional(x.scalar_type()) : std::nullopt;
}

// Returns convolve(x, weight, bias). Runs it in float32 if half precision applies and is not safe.
template <typename Convolve>
torch::Tensor convolve_safely(bool is_safe, const torch::Tensor& x, const torch::Tensor& weight,
                              const torch::Tensor& bias, const Convolve& convolve) {
  const auto half = is_safe ? std::nullopt : half_on_cpu(x);
  if (!half) return convolve(x, weight, bias);
  const auto in_float = [](const torch::Tensor& t) { return t.defined() ? t.to(torch::kFloat) : t; };
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
  return convolve(in_float(x), in_float(weight), in_float(bias)).to(*half);
}

// Returns whether a convolution of x, [batch, channels, height, width], may run in half precision on a CPU.
bool is_safe_in_half(const torch::Tensor& x, const Window2& window, int64_t groups);
// Computes a convolution of [batch, channels, height, width] with the window's padding.
torch::Tensor convolve_images(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                              const Window2& window, int64_t groups);

}  // namespace cohort
