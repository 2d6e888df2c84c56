// Batch normalization. The number of batches lies on the CPU and is counted up by a pointer, because an operation of
// LibTorch takes many times as long.
#include <ATen/Functions.h>

#include "cohort/replica.h"
#include "cohort/train/layers/normalization.h"
#include "ops/one_layout.h"
#include "strategy/context.h"
#include "strategy/divided.h"
#include "strategy/replica_scope.h"
#include "strategy/sync_batch_norm.h"
#include "train/layers/batch_norm_module.h"
#include "train/layers/support.h"

namespace cohort {

BatchNormModule::BatchNormModule(const BatchNormalizationOptions& options, const BuildContext& context)
    : name_(context.name),
      rank_(static_cast<int64_t>(context.input.size()) + 1),
      dim_(options.axis < 0 ? options.axis + rank_ : options.axis),
      channels_(context.input[static_cast<std::size_t>(dim_ - 1)]),
      momentum_(1.0 - options.momentum),
      epsilon_(options.epsilon),
      synchronized_(options.synchronized),
      first_replica_counts_(options.replica_statistics == ReplicaStatistics::kFirst),
      unbiased_(options.moving_variance == MovingVariance::kTorch ||
                (options.moving_variance == MovingVariance::kKeras2 && rank_ == 4)) {
  if (options.scale) weight_ = register_parameter("weight", torch::ones({channels_}, context.dtype));
  if (options.center) bias_ = register_parameter("bias", torch::zeros({channels_}, context.dtype));
  running_mean_ = register_buffer("running_mean", torch::zeros({channels_}, context.dtype));
  running_var_ = register_buffer("running_var", torch::ones({channels_}, context.dtype));
  batches_ = register_buffer("num_batches_tracked", torch::zeros({}, torch::kLong));
}

torch::Tensor BatchNormModule::forward(const torch::Tensor& x) {
  if (form() != nullptr) return form()->forward(x);
  check_input(name_, kType, x, rank_, dim_, channels_);
  return dim_ == 1 ? compute(x, running()) : by_rows(x);
}

torch::Tensor BatchNormModule::forward_masked(const torch::Tensor& x, const torch::Tensor& mask) {
  if (!learns() || x.numel() == 0) return forward(x);
  check_input(name_, kType, x, rank_, dim_, channels_);
  if (form() != nullptr || (synchronized_ && replica_among_others() != nullptr)) {
    fail<Unimplemented>("[layers] ", name_, " (BatchNormalization): a mask came, and the layer is ",
                        form() == nullptr ? "synchronized" : "divided along an axis of the mesh",
                        "; statistics of the steps that count are not supported there");
  }
  count_batch();
  return learn_masked(x, mask);
}

torch::Tensor BatchNormModule::compute(const torch::Tensor& x, const Running& running) {
  if (!learns()) return normalize(x, running.mean, running.var, /*learn=*/false);
  if (synchronized_) require_whole_share("a synchronized batch norm");
  Replica* replica = replica_among_others();
  if (synchronized_ && replica != nullptr) {
    count_batch();
    return sync_batch_norm(x, {weight_, bias_, running.mean, running.var, momentum_, epsilon_, unbiased_},
                           {&replica->communicator()});
  }
  const int64_t values = x.numel() / x.size(1);
  if (values == 0) return empty_output(x);
  count_batch();
  if (values > 1) return learn(x, running, static_cast<double>(values));
  learn_from_one(x, running);
  return normalize(x, {}, {}, /*learn=*/true);
}

torch::Tensor BatchNormModule::normalize(const torch::Tensor& x, const torch::Tensor& mean, const torch::Tensor& var,
                                         bool learn) const {
  const auto norm = [&](const torch::Tensor& input) {
    return at::batch_norm(input, weight_, bias_, mean, var, learn, momentum_, epsilon_, /*cudnn_enabled=*/true);
  };
  return is_divided(x) ? norm(x) : normalize_in_one_layout(x, norm);
}

// Computes channels in another dimension than 1: the rest are rows.
torch::Tensor BatchNormModule::by_rows(const torch::Tensor& x) {
  const torch::Tensor last = x.movedim(dim_, -1);
  const torch::Tensor y = compute(last.reshape({-1, channels_}), running());
  return y.reshape(last.sizes()).movedim(-1, dim_);
}

// The mask is [batch, steps], the first two dimensions of x.
torch::Tensor BatchNormModule::learn_masked(const torch::Tensor& x, const torch::Tensor& mask) {
  std::vector<int64_t> shape(static_cast<std::size_t>(rank_), 1);
  shape[0] = x.size(0);
  shape[1] = x.size(1);
  const torch::Tensor counts = mask.reshape(shape).expand_as(x);
  std::vector<int64_t> dims;
  for (int64_t dim = 0; dim < rank_; ++dim) {
    if (dim != dim_) dims.push_back(dim);
  }
  const auto sum = [&](const torch::Tensor& values) {
    return at::where(counts, values, at::zeros_like(values)).sum(dims, /*keepdim=*/true);
  };
  const torch::Tensor number = counts.to(x.scalar_type()).sum(dims, /*keepdim=*/true);
  const torch::Tensor divisor = number.clamp_min(1);
  const torch::Tensor centered = x - sum(x) / divisor;
  const torch::Tensor var = sum(centered.square()) / divisor;
  move_running(number.flatten(), (sum(x) / divisor).flatten(), var.flatten());
  torch::Tensor y = centered * (var + epsilon_).rsqrt();
  const auto per_channel = [&](const torch::Tensor& values) { return values.view(var.sizes()); };
  if (weight_.defined()) y = y * per_channel(weight_);
  return bias_.defined() ? y + per_channel(bias_) : y;
}

// Moves the statistics of the channels that have values.
void BatchNormModule::move_running(const torch::Tensor& number, const torch::Tensor& mean,
                                   const torch::Tensor& var) const {
  const torch::NoGradGuard no_grad;
  const torch::Tensor share = number.gt(0).to(mean.scalar_type()) * momentum_;
  const torch::Tensor moved = unbiased_ ? var * (number / (number - 1).clamp_min(1)) : var;
  running_mean_.add_((mean - running_mean_) * share);
  running_var_.add_((moved - running_var_) * share);
}

// LibTorch's running variance moves to the unbiased variance, n / (n - 1) times the batch's own. For the other
// variance a copy is moved, of which a part is taken. (The backward pass holds on to what LibTorch was given.)
torch::Tensor BatchNormModule::learn(const torch::Tensor& x, const Running& running, double values) const {
  if (unbiased_) return normalize(x, running.mean, running.var, /*learn=*/true);
  const torch::Tensor moved = running.var.clone();
  torch::Tensor y = normalize(x, running.mean, moved, /*learn=*/true);
  running.var.mul_((1.0 - momentum_) / values).add_(moved, (values - 1.0) / values);
  return y;
}

void BatchNormModule::count_batch() {
  if (is_elsewhere()) return;
  if (ReplicaScope* const call = thread_context().replica_scope) {
    call->note_use(batches_);
    call->note_change(batches_);
  }
  if (batches_.is_cpu() && batches_.scalar_type() == torch::kLong) {
    ++*batches_.data_ptr<int64_t>();
  } else {  // Module::to(dtype) converts every buffer
    batches_.add_(1);
  }
}

// Returns an output that is connected to the parameters, so that their gradients are zeros.
torch::Tensor BatchNormModule::empty_output(const torch::Tensor& x) const {
  std::vector<int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[1] = x.size(1);
  torch::Tensor y = x;
  if (weight_.defined()) y = y * weight_.view(shape);
  if (bias_.defined()) y = y + bias_.view(shape);
  return y;
}

// The unbiased variance of one value is 0 / 0: the biased one, zero, takes its place.
void BatchNormModule::learn_from_one(const torch::Tensor& x, const Running& running) const {
  const torch::NoGradGuard no_grad;
  running.mean.mul_(1.0 - momentum_).add_(x.detach().reshape({x.size(1)}), momentum_);
  running.var.mul_(1.0 - momentum_);
}

namespace {

class BatchNormKind final : public LayerKind {
 public:
  explicit BatchNormKind(BatchNormalizationOptions options) : options_(std::move(options)) {
    if (!(options_.momentum >= 0.0 && options_.momentum < 1.0)) {
      fail_option(BatchNormModule::kType, "momentum must be in [0, 1), got ", options_.momentum);
    }
    if (options_.axis == 0) fail_option(BatchNormModule::kType, "axis 0 is the batch; wanted that of the channels");
    if (!(options_.epsilon > 0.0))
      fail_option(BatchNormModule::kType, "epsilon must be positive, got ", options_.epsilon);
  }
  std::string_view type() const override { return BatchNormModule::kType; }
  std::string_view base_name() const override { return "batch_normalization"; }

  Shape output_shape(const BuildContext& context) const override {
    const auto rank = static_cast<int64_t>(context.input.size()) + 1;
    const int64_t dim = options_.axis < 0 ? options_.axis + rank : options_.axis;
    if (dim < 1 || dim >= rank || context.input[static_cast<std::size_t>(dim - 1)] <= 0) {
      fail_input(context.name, BatchNormModule::kType, to_text(context.input) + " an example",
                 options_.axis == 1
                     ? "[channels, ...] with a number of channels that is known"
                     : c10::str("a known number of channels in dimension ", options_.axis, " of a batch"));
    }
    return context.input;
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<BatchNormModule>(options_, context);
  }

 private:
  BatchNormalizationOptions options_;
};

}  // namespace

Layer BatchNormalization(const BatchNormalizationOptions& options) {
  return make_layer<BatchNormKind>(options, options.trainable);
}

}  // namespace cohort
