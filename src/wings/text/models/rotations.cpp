#include "wings/text/models/rotations.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

namespace cohort::models {

namespace {

// Returns the base of the angles. That of type "dynamic" grows with the steps beyond those of the training ("NTK-aware"
// scaling).
double base_of(int64_t steps, const DecoderOptions& options) {
  const RopeScaling& scaling = options.rope_scaling;
  if (scaling.type != "dynamic") return options.rope_theta;
  const auto trained = static_cast<double>(scaling.original_max_positions);
  const double times = std::max(static_cast<double>(steps), trained) / trained;
  const auto size = static_cast<double>(options.head_dim);
  return options.rope_theta * std::pow(scaling.factor * times - (scaling.factor - 1.0), size / (size - 2.0));
}

// Returns the angles per position as the scaling changes them.
torch::Tensor scaled_speeds(const torch::Tensor& speeds, const RopeScaling& scaling) {
  if (scaling.type == "linear") return speeds / scaling.factor;
  if (scaling.type != "llama3") return speeds;
  // The turns within the positions of the training decide: few turns are slowed down, many stay, and between them the
  // factor changes linearly.
  const torch::Tensor turns = speeds * (static_cast<double>(scaling.original_max_positions) / (2.0 * M_PI));
  const torch::Tensor kept =
      ((turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)).clamp(0.0, 1.0);
  return speeds * (kept + (1.0 - kept) / scaling.factor);
}

}  // namespace

Rotations::Rotations(int64_t steps, const DecoderOptions& options, const at::TensorOptions& like) {
  const auto wide = like.dtype(like.dtype() == torch::kDouble ? torch::kDouble : torch::kFloat);
  const int64_t size = options.head_dim;
  const double slope = -std::log(base_of(steps, options)) / static_cast<double>(size);
  const torch::Tensor speeds = scaled_speeds(at::exp(at::arange(0, size, 2, wide) * slope), options.rope_scaling);
  const torch::Tensor angles = at::arange(steps, wide).unsqueeze(1) * at::cat({speeds, speeds});
  cosines_ = angles.cos().to(like.dtype());
  sines_ = angles.sin().to(like.dtype());
}

torch::Tensor Rotations::operator()(const torch::Tensor& x) const {
  const int64_t half = x.size(3) / 2;
  return x * cosines_ + at::cat({-x.narrow(3, half, half), x.narrow(3, 0, half)}, 3) * sines_;
}

}  // namespace cohort::models
