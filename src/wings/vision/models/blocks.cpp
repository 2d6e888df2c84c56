#include "wings/vision/models/blocks.h"

#include <torch/nn/init.h>

#include <cmath>

#include "base/fail.h"
#include "cohort/parallel/stages.h"
#include "cohort/replica.h"
#include "cohort/train/layers/remat.h"
#include "ops/one_layout.h"
#include "strategy/context.h"
#include "strategy/divided.h"
#include "strategy/replica_scope.h"
#include "strategy/sync_batch_norm.h"

namespace cohort::models {

torch::nn::Conv2d conv(const ConvShape& shape) {
  torch::nn::Conv2d made(torch::nn::Conv2dOptions(shape.in, shape.out, shape.kernel)
                             .stride(shape.stride)
                             .padding(shape.kernel / 2)
                             .groups(shape.groups)
                             .bias(false));
  torch::nn::init::kaiming_normal_(made->weight, 0, torch::kFanOut, torch::kReLU);
  return made;
}

NormShape chosen(NormShape own, const NormActivation& options) {
  own.epsilon = options.epsilon.value_or(own.epsilon);
  own.momentum = options.momentum.value_or(own.momentum);
  own.synchronized = options.synchronized;
  if (!(own.epsilon > 0.0) || !(own.momentum >= 0.0 && own.momentum <= 1.0)) {
    fail<InvalidArgument>("[models] the batch norms' epsilon is ", own.epsilon, " and their momentum ", own.momentum,
                          ", wanted a positive number, and one of 0 to 1");
  }
  return own;
}

torch::nn::BatchNorm2d norm(int64_t channels, const NormShape& shape) {
  return torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(channels).eps(shape.epsilon).momentum(shape.momentum));
}

namespace {

// Learns from one value per channel. Its unbiased variance, to which LibTorch moves the running one, is 0 / 0; the
// biased one, zero, takes its place, as in Keras.
torch::Tensor norm_of_one(torch::nn::BatchNorm2d& norm, const torch::Tensor& x) {
  const double momentum = norm->options.momentum().value();
  {
    const torch::NoGradGuard no_grad;
    norm->running_mean.mul_(1.0 - momentum).add_(x.detach().reshape({x.size(1)}), momentum);
    norm->running_var.mul_(1.0 - momentum);
  }
  return at::batch_norm(x, norm->weight, norm->bias, {}, {}, /*training=*/true, momentum, norm->options.eps(),
                        /*cudnn_enabled=*/true);
}

}  // namespace

torch::Tensor batch_norm(torch::nn::BatchNorm2d& norm, const torch::Tensor& x, bool synchronized) {
  const bool learns = norm->is_training();
  if (synchronized && learns) require_whole_share("a synchronized batch norm");
  Replica* replica = synchronized && learns ? replica_among_others() : nullptr;
  if (replica != nullptr) {
    norm->num_batches_tracked.add_(1);
    return sync_batch_norm(x,
                           {norm->weight, norm->bias, norm->running_mean, norm->running_var,
                            norm->options.momentum().value(), norm->options.eps()},
                           {&replica->communicator()});
  }
  if (learns && x.numel() == 0) {  // connected to the parameters, so that their gradients are zeros
    return x * norm->weight.view({1, -1, 1, 1}) + norm->bias.view({1, -1, 1, 1});
  }
  if (learns && !is_elsewhere()) norm->num_batches_tracked.add_(1);
  const auto normalize = [&](const torch::Tensor& input) {
    return at::batch_norm(input, norm->weight, norm->bias, norm->running_mean, norm->running_var, learns,
                          norm->options.momentum().value(), norm->options.eps(), /*cudnn_enabled=*/true);
  };
  if (is_divided(x)) return normalize(x);
  return learns && x.numel() == x.size(1) ? norm_of_one(norm, x) : normalize_in_one_layout(x, normalize);
}

void Chain::push_back(const std::shared_ptr<LayerModule>& link) {
  links_.push_back(register_module(std::to_string(links_.size()), link));
}

torch::Tensor through(const std::shared_ptr<LayerModule>& block, const torch::Tensor& x, bool again) {
  if (!again) return block->forward(x);
  return remat(
      block, [block](const torch::Tensor& input) { return block->forward(input); }, x);
}

torch::Tensor Chain::forward(const torch::Tensor& x) {
  torch::Tensor y = x;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (!place_.empty()) y = stage_place(y, place_ + "." + std::to_string(i));
    y = through(links_[i], y, again_);
  }
  return y;
}

ConvNorm::ConvNorm(const ConvShape& shape, const NormShape& norm, Activation activation)
    : conv_(register_module("0", conv(shape))),
      norm_(register_module("1", models::norm(shape.out, norm))),
      synchronized_(norm.synchronized),
      activation_(std::move(activation)) {}

torch::Tensor ConvNorm::forward(const torch::Tensor& x) {
  const torch::Tensor y = batch_norm(norm_, conv_->forward(x), synchronized_);
  return activation_.is_linear() ? y : activation_(y);
}

void draw_truncated_normal(torch::Tensor tensor, double deviation) {
  const torch::NoGradGuard no_grad;
  const double within = std::erf(std::sqrt(2.0));  // the part of a normal distribution within two deviations
  tensor.uniform_(-within, within).erfinv_().mul_(deviation * std::sqrt(2.0));
}

void check_images(const char* model, const torch::Tensor& x, int64_t channels) {
  if (x.dim() == 4 && x.size(1) == channels && x.is_floating_point()) return;
  fail<InvalidArgument>("[models] ", model, ": the input is ", x.dtype().name(), " ", x.sizes(),
                        ", wanted floating-point images [examples, ", channels, ", height, width]");
}

}  // namespace cohort::models
