// Adam (Kingma and Ba, 2015) with L2 decay, AdamW (Loshchilov and Hutter, 2019) with decoupled decay, AMSGrad (Reddi,
// Kale and Kumar, 2018), in the forms of torch::optim.
#include "cohort/optimizer.h"
#include "optimizer/rules/rule.h"

namespace cohort {

namespace {

struct AdamConfig {
  double beta_1;
  double beta_2;
  double epsilon;
  bool amsgrad;
  double l2_decay;
  double decoupled_decay;
};

std::vector<std::string> slot_names(bool amsgrad) {
  std::vector<std::string> names{"exp_avg", "exp_avg_sq"};
  if (amsgrad) names.emplace_back("max_exp_avg_sq");
  return names;
}

class AdamRule final : public Rule<AdamRule> {
 public:
  AdamRule(std::string name, const AdamConfig& config)
      : Rule(std::move(name), slot_names(config.amsgrad)), config_(config) {}

  template <typename T>
  void apply(const kernels::UpdateTable<T>& table, const Segment& segment, const StepContext& context) const {
    table.adam(parameter_of<T>(segment), gradient_of<T>(segment), slot_of<T>(segment, 0), slot_of<T>(segment, 1),
               config_.amsgrad ? slot_of<T>(segment, 2) : nullptr, segment.size,
               gradient_args(context, segment.decay ? config_.l2_decay : 0.0), args(segment.decay, context));
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, bool decay,
             const StepContext& context) const {
    const kernels::AdamArgs a = args(decay, context);
    const torch::Tensor d = read_gradient(p, g, context, decay ? config_.l2_decay : 0.0);
    slots[0].mul_(a.beta_1).add_(d, 1.0 - a.beta_1);
    slots[1].mul_(a.beta_2).addcmul_(d, d, 1.0 - a.beta_2);
    if (config_.amsgrad) at::maximum_out(slots[2], slots[2], slots[1]);
    const torch::Tensor denominator = slots[config_.amsgrad ? 2 : 1].sqrt().add_(a.epsilon);
    if (a.shrink != 1.0) p.mul_(a.shrink);
    p.addcdiv_(slots[0], denominator, -a.step_size);
  }

 private:
  // lr * m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon) with numerator and denominator multiplied by
  // sqrt(1 - beta_2^t), which leaves no correction for the elements.
  kernels::AdamArgs args(bool decay, const StepContext& context) const {
    const BiasCorrections corrections = bias_corrections(config_.beta_1, config_.beta_2, context.step);
    return {.beta_1 = config_.beta_1,
            .beta_2 = config_.beta_2,
            .step_size = context.learning_rate * corrections.root_second / corrections.first,
            .epsilon = config_.epsilon * corrections.root_second,
            .shrink = decay ? 1.0 - context.learning_rate * config_.decoupled_decay : 1.0};
  }

  AdamConfig config_;
};

template <typename Options>
void check(const char* name, const Options& options) {
  require_fraction(name, "beta_1", options.beta_1);
  require_fraction(name, "beta_2", options.beta_2);
  require_not_negative(name, "epsilon", options.epsilon);
  require_not_negative(name, "weight_decay", options.weight_decay);
}

template <typename Options>
Optimizer make(const char* name, const Options& options, double l2_decay, double decoupled_decay) {
  check(name, options);
  const AdamConfig config{.beta_1 = options.beta_1,
                          .beta_2 = options.beta_2,
                          .epsilon = options.epsilon,
                          .amsgrad = options.amsgrad,
                          .l2_decay = l2_decay,
                          .decoupled_decay = decoupled_decay};
  return {std::make_shared<AdamRule>(name, config), options.learning_rate, options.gradient,
          options.exclude_from_weight_decay};
}

}  // namespace

Optimizer Adam(const AdamOptions& options) {
  return make("Adam", options, /*l2_decay=*/options.weight_decay, /*decoupled_decay=*/0.0);
}

Optimizer AdamW(const AdamWOptions& options) {
  return make("AdamW", options, /*l2_decay=*/0.0, /*decoupled_decay=*/options.weight_decay);
}

}  // namespace cohort
