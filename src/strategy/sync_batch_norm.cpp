#include "strategy/sync_batch_norm.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tuple>

#include "base/first_derivative.h"
#include "ops/one_layout.h"
#include "strategy/divided.h"
#include "strategy/saved_communicator.h"

namespace cohort {

namespace {

// Returns all dimensions but the channels'.
std::vector<int64_t> reduced_dims(const torch::Tensor& x) {
  std::vector<int64_t> dims = {0};
  for (int64_t i = 2; i < x.dim(); ++i) dims.push_back(i);
  return dims;
}

// The statistics of the global batch, float64.
struct Statistics {
  torch::Tensor count;  // the number of values a channel, a scalar
  torch::Tensor mean;   // [channels]
  torch::Tensor var;    // [channels], biased
};

// Returns the biased variances and the means of the channels of this rank's values.
std::tuple<torch::Tensor, torch::Tensor> own_statistics(const torch::Tensor& x) {
  const bool plain = x.scalar_type() == torch::kFloat || x.scalar_type() == torch::kDouble;
  if (!x.device().is_cpu() || !plain) return at::var_mean(x, reduced_dims(x), /*unbiased=*/false);
  // The batch norm's own kernel takes a tenth of the time of a general reduction.
  auto [mean, var] = at::batch_norm_update_stats(x, {}, {}, /*momentum=*/0.0);
  return {var, mean};
}

using Groups = std::vector<Communicator*>;

// Each rank contributes count, mean and sum of squared deviations; the combination (Chan, Golub and LeVeque) subtracts
// no large numbers from each other, unlike sums of squares. One collective a group; float64, as counts must be exact.
Statistics global_statistics(const torch::Tensor& x, const Groups& groups) {
  const int64_t channels = x.size(1);
  const int64_t count = channels == 0 ? 0 : x.numel() / channels;
  torch::Tensor own = torch::zeros({1, 2 * channels + 1}, x.options().dtype(torch::kDouble).requires_grad(false));
  if (count > 0) {
    const auto [var, mean] = own_statistics(x);
    own.slice(1, 0, channels).copy_(mean.unsqueeze(0));
    own.slice(1, channels, 2 * channels).copy_(var.unsqueeze(0)).mul_(static_cast<double>(count));
    own.slice(1, 2 * channels, 2 * channels + 1).fill_(static_cast<double>(count));
  }
  torch::Tensor all = own;
  for (Communicator* group : groups) all = at::cat(group->all_gather(all), 0);
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
  if (!args.running_mean.defined()) return;
  const torch::Tensor var = args.unbiased ? now.var * (now.count / (now.count - 1.0).clamp_min(1.0)) : now.var;
  const torch::Tensor share = (now.count > 0).to(torch::kDouble) * args.momentum;  // none: nothing is learned
  const auto blend = [&](const torch::Tensor& running, const torch::Tensor& value) {
    running.copy_(running.to(torch::kDouble) * (1.0 - share) + value * share);
  };
  blend(args.running_mean, now.mean);
  blend(args.running_var, var);
}

std::vector<int64_t> to_numbers(const Groups& groups) {
  std::vector<int64_t> numbers;
  for (Communicator* group : groups) numbers.push_back(to_number(*group));
  return numbers;
}

class SyncBatchNorm : public torch::autograd::Function<SyncBatchNorm> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight, const torch::Tensor& bias, const SyncBatchNormArgs& args,
                               const Groups& groups) {
    const Statistics now = global_statistics(x, groups);
    update_running(now, args);
    const torch::Tensor mean = now.mean.to(x.scalar_type());
    const torch::Tensor var = now.var.to(x.scalar_type());
    context->save_for_backward({x, weight, mean, var, now.count});
    context->saved_data["groups"] = to_numbers(groups);
    context->saved_data["epsilon"] = args.epsilon;
    if (x.numel() == 0) return at::zeros_like(x);
    return at::batch_norm(x, weight, bias, mean, var, /*training=*/false, /*momentum=*/0.0, args.epsilon,
                          /*cudnn_enabled=*/false);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    require_first_derivative("[strategy] ", "a batch norm over several replicas");
    const auto saved = context->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &var = saved[3], &count = saved[4];
    const double epsilon = context->saved_data["epsilon"].toDouble();
    const int64_t channels = x.size(1);
    // What the gradients would be if mean and variance were constants.
    torch::Tensor dx = has_ambiguous_layout(x) ? gradients[0].contiguous(x.suggest_memory_format()) : gradients[0];
    torch::Tensor weight_gradient = at::zeros_like(weight);
    torch::Tensor bias_gradient = at::zeros_like(weight);
    if (x.numel() > 0) {
      std::tie(dx, weight_gradient, bias_gradient) = at::native_batch_norm_backward(
          dx, x, weight, mean, var, {}, {}, /*train=*/false, epsilon, {true, true, true});
    }
    // The gradient of a mean over the global batch needs sums over all replicas; those of the parameters stay this
    // replica's own, because the optimizer, or enter_line(), sums them.
    torch::Tensor sums = at::cat({bias_gradient, weight_gradient}).to(torch::kDouble);
    for (const int64_t group : context->saved_data["groups"].toIntVector()) {
      to_communicator(group).all_reduce({&sums, 1}, ReduceOp::kSum);
    }
    if (x.numel() > 0) {
      const torch::Tensor scale = weight / (var + epsilon).sqrt() / count.clamp_min(1.0).to(x.scalar_type());
      const torch::Tensor of_mean = -scale * sums.slice(0, 0, channels).to(x.scalar_type());
      const torch::Tensor of_var = -scale * sums.slice(0, channels).to(x.scalar_type());
      // of_var times the normalized input, plus of_mean: in one pass.
      dx.add_(at::batch_norm(x, of_var, of_mean, mean, var, /*training=*/false, 0.0, epsilon, false));
    }
    return {dx, weight_gradient, bias_gradient, {}, {}};
  }
};

}  // namespace

torch::Tensor sync_batch_norm(const torch::Tensor& x, const SyncBatchNormArgs& args, const Groups& groups) {
  if (const DividedTensor* const divided = DividedTensor::of(x)) {
    SyncBatchNormArgs own = args;
    own.weight = divided->shared(args.weight);
    own.bias = divided->shared(args.bias);
    Groups all = {&divided->line()};
    all.insert(all.end(), groups.begin(), groups.end());
    return on_part(x, [&](const torch::Tensor& part) { return sync_batch_norm(part, own, all); });
  }
  const auto options = x.options().requires_grad(false);
  const torch::Tensor weight = args.weight.defined() ? args.weight : torch::ones({x.size(1)}, options);
  const torch::Tensor bias = args.bias.defined() ? args.bias : torch::zeros({x.size(1)}, options);
  const torch::Tensor input = has_ambiguous_layout(x) ? x.contiguous(x.suggest_memory_format()) : x;
  return SyncBatchNorm::apply(input, weight, bias, args, groups);
}

}  // namespace cohort
