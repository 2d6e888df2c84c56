// Adam (Kingma and Ba, 2015), AdamW (Loshchilov and Hutter, 2019) with decoupled decay, AMSGrad (Reddi,
// Kale and Kumar, 2018). Keras adds epsilon to sqrt(v) before the correction of the bias, torch::optim after it.
#include "cohort/optimizer.h"
#include "optimizer/rules/rule.h"

namespace cohort {

namespace {

struct AdamConfig {
  double beta_1;
  double beta_2;
  double epsilon;
  bool amsgrad;
  bool corrects_epsilon;   // LibTorch's formulation
  double decoupled_decay;  // the decay in the kernel, beside the update
};

std::vector<std::string> adam_slots(bool amsgrad) {
  std::vector<std::string> names{"exp_avg", "exp_avg_sq"};
  if (amsgrad) names.emplace_back("max_exp_avg_sq");
  return names;
}

class AdamRule final : public Rule<AdamRule> {
 public:
  AdamRule(std::string name, const AdamConfig& config, const Surroundings& around)
      : Rule(std::move(name), adam_slots(config.amsgrad), around), config_(config) {}

  template <typename P, typename T>
  void apply(const kernels::UpdateTable<P, T>& table, const Segment& segment, const StepContext& context) const {
    table.adam(parameter_of<P>(segment), gradient_of<P>(segment), slot_of<T>(segment, 0), slot_of<T>(segment, 1),
               config_.amsgrad ? slot_of<T>(segment, 2) : nullptr, segment.size, reading(segment, context),
               args(segment.treatment, context));
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, Treatment treatment,
             const StepContext& context) const {
    const kernels::AdamArgs a = args(treatment, context);
    const torch::Tensor d = read(p, g, treatment, context);
    slots[0].mul_(a.beta_1).add_(d, 1.0 - a.beta_1);
    slots[1].mul_(a.beta_2).addcmul_(d, d, 1.0 - a.beta_2);
    if (config_.amsgrad) at::maximum_out(slots[2], slots[2], slots[1]);
    const torch::Tensor denominator = slots[config_.amsgrad ? 2 : 1].sqrt().add_(a.epsilon);
    if (a.shrink != 1.0) p.mul_(a.shrink);
    p.addcdiv_(slots[0], denominator, -a.step_size);
  }

 private:
  friend class Rule<AdamRule>;

  // LibTorch's form is lr * m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon). Numerator and denominator are
  // multiplied by sqrt(1 - beta_2^t), which leaves no correction for the elements.
  kernels::AdamArgs args(Treatment treatment, const StepContext& context) const {
    const BiasCorrections corrections = bias_corrections(config_.beta_1, config_.beta_2, context.step);
    return {.beta_1 = config_.beta_1,
            .beta_2 = config_.beta_2,
            .step_size = context.learning_rate * corrections.root_second / corrections.first,
            .epsilon = config_.epsilon * (config_.corrects_epsilon ? corrections.root_second : 1.0),
            .shrink = treatment.decay ? 1.0 - context.learning_rate * config_.decoupled_decay : 1.0};
  }

  AdamConfig config_;
};

template <typename Options>
Optimizer make_adam(const char* name, const Options& options, bool decouples) {
  require_fraction(name, "beta_1", options.beta_1);
  require_fraction(name, "beta_2", options.beta_2);
  require_not_negative(name, "epsilon", options.epsilon);
  const AdamConfig config{.beta_1 = options.beta_1,
                          .beta_2 = options.beta_2,
                          .epsilon = options.epsilon,
                          .amsgrad = options.amsgrad,
                          .corrects_epsilon = options.formulation == Formulation::kTorch,
                          .decoupled_decay = decouples ? options.weight_decay : 0.0};
  const Surroundings around{.l2 = decouples ? 0.0 : options.weight_decay, .ema = options.ema};
  return make_optimizer(std::make_shared<AdamRule>(name, config, around), options);
}

}  // namespace

Optimizer Adam(const AdamOptions& options) {
  return make_adam("Adam", options, options.formulation != Formulation::kTorch);
}

Optimizer AdamW(const AdamWOptions& options) {
  return make_adam("AdamW", options, /*decouples=*/true);
}

}  // namespace cohort
