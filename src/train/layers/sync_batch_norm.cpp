#include "train/layers/sync_batch_norm.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

namespace cohort {

namespace {

// Returns all dimensions but the channels'.
std::vector<int64_t> reduced_dims(const torch::Tensor& x) {
  std::vector<int64_t> dims = {0};
  for (int64_t i = 2; i < x.dim(); ++i) dims.push_back(i);
  return dims;
}

// Shapes one value a channel so that it combines with x.
torch::Tensor along_channels(const torch::Tensor& value, const torch::Tensor& x) {
  std::vector<int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[1] = value.numel();
  return value.to(x.scalar_type()).view(shape);
}

// The statistics of the global batch, float64.
struct Statistics {
  torch::Tensor count;  // the number of values a channel, a scalar
  torch::Tensor mean;   // [channels]
  torch::Tensor var;    // [channels], biased
};

// Each rank contributes count, mean and sum of squared deviations; the combination (Chan, Golub and LeVeque) subtracts
// no large numbers from each other, unlike sums of squares. One collective; float64, as the counts must be exact.
Statistics global_statistics(const torch::Tensor& x, Communicator& communicator) {
  const int64_t channels = x.size(1);
  const int64_t count = channels == 0 ? 0 : x.numel() / channels;
  torch::Tensor own = torch::zeros({1, 2 * channels + 1}, x.options().dtype(torch::kDouble).requires_grad(false));
  if (count > 0) {
    const auto [var, mean] = at::var_mean(x, reduced_dims(x), /*unbiased=*/false);
    own.slice(1, 0, channels).copy_(mean.unsqueeze(0));
    own.slice(1, channels, 2 * channels).copy_(var.unsqueeze(0)).mul_(static_cast<double>(count));
    own.slice(1, 2 * channels, 2 * channels + 1).fill_(static_cast<double>(count));
  }
  const torch::Tensor all = at::cat(communicator.all_gather(own), 0);
  const torch::Tensor counts = all.slice(1, 2 * channels);
  const torch::Tensor means = all.slice(1, 0, channels);
  const torch::Tensor total = counts.sum();
  const torch::Tensor divisor = total.clamp_min(1.0);
  const torch::Tensor mean = (counts * means).sum(0) / divisor;
  const torch::Tensor apart = means - mean;
  const torch::Tensor var = (all.slice(1, channels, 2 * channels) + counts * apart * apart).sum(0) / divisor;
  return {total, mean, var};
}

void update_running(const Statistics& now, const SyncBatchNormArgs& args) {
  const torch::Tensor var = args.unbiased ? now.var * (now.count / (now.count - 1.0).clamp_min(1.0)) : now.var;
  const torch::Tensor share = (now.count > 0).to(torch::kDouble) * args.momentum;  // none: nothing is learned
  const auto blend = [&](const torch::Tensor& running, const torch::Tensor& value) {
    running.copy_(running.to(torch::kDouble) * (1.0 - share) + value * share);
  };
  blend(args.running_mean, now.mean);
  blend(args.running_var, var);
}

class SyncBatchNorm : public torch::autograd::Function<SyncBatchNorm> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight, const torch::Tensor& bias,
                               const torch::Tensor& running_mean, const torch::Tensor& running_var, double momentum,
                               double epsilon, bool unbiased, int64_t communicator) {
    const Statistics now = global_statistics(x, *reinterpret_cast<Communicator*>(communicator));  // NOLINT
    update_running(now, {weight, bias, running_mean, running_var, momentum, epsilon, unbiased});
    const torch::Tensor mean = now.mean.to(x.scalar_type());
    const torch::Tensor var = now.var.to(x.scalar_type());
    const torch::Tensor inverse = (now.var + epsilon).rsqrt().to(x.scalar_type());
    context->save_for_backward({x, weight, mean, inverse, now.count});
    // The pointer is that of the caller: the address of the replica's communicator, which outlives every backward pass.
    context->saved_data["communicator"] = communicator;
    if (x.numel() == 0) return at::zeros_like(x);
    return at::batch_norm(x, weight, bias, mean, var, /*training=*/false, /*momentum=*/0.0, epsilon,
                          /*cudnn_enabled=*/false);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &inverse = saved[3], &count = saved[4];
    auto& communicator = *reinterpret_cast<Communicator*>(context->saved_data["communicator"].toInt());  // NOLINT
    const torch::Tensor& dy = gradients[0];
    const int64_t channels = x.size(1);
    const auto dims = reduced_dims(x);

    const torch::Tensor normal = (x - along_channels(mean, x)) * along_channels(inverse, x);
    const torch::Tensor bias_gradient = dy.sum(dims);
    const torch::Tensor weight_gradient = (dy * normal).sum(dims);
    // The gradient of a mean over the global batch needs sums over all replicas; those of the parameters stay this
    // replica's own, because the optimizer sums them.
    torch::Tensor sums = at::cat({bias_gradient, weight_gradient}).to(torch::kDouble);
    communicator.all_reduce({&sums, 1}, ReduceOp::kSum);
    sums.div_(count.clamp_min(1.0));
    const torch::Tensor dx =
        along_channels(weight * inverse, x) *
        (dy - along_channels(sums.slice(0, 0, channels), x) - normal * along_channels(sums.slice(0, channels), x));
    return {dx, weight_gradient, bias_gradient, {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

torch::Tensor sync_batch_norm(const torch::Tensor& x, const SyncBatchNormArgs& args, Communicator& communicator) {
  const auto options = x.options().requires_grad(false);
  const torch::Tensor weight = args.weight.defined() ? args.weight : torch::ones({x.size(1)}, options);
  const torch::Tensor bias = args.bias.defined() ? args.bias : torch::zeros({x.size(1)}, options);
  return SyncBatchNorm::apply(x, weight, bias, args.running_mean, args.running_var, args.momentum, args.epsilon,
                              args.unbiased, reinterpret_cast<int64_t>(&communicator));
}

}  // namespace cohort
