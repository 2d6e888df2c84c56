// Adam (Kingma and Ba, 2015) with L2 decay, AdamW (Loshchilov and Hutter, 2019) with decoupled decay, AMSGrad (Reddi, Kale
// and Kumar, 2018).
#include "cohort/optimizer.h"
#include "train/optimizers/rule.h"

namespace cohort {

namespace {

struct Config {
  double beta_1;
  double beta_2;
  double epsilon;
  bool amsgrad;
  double l2_decay;
  double decoupled_decay;
};

class AdamRule final : public Rule<AdamRule> {
 public:
  AdamRule(std::string name, const Config& config)
      : Rule(std::move(name), config.amsgrad ? std::vector<std::string>{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
                                             : std::vector<std::string>{"exp_avg", "exp_avg_sq"}),
        config_(config) {}

  template <typename T>
  void apply(const kernels::UpdateTable<T>& table, const Segment& segment, T* const* slots, const StepContext& context) const {
    table.adam(typed<T>(segment.parameter), typed<T>(segment.gradient), slots[0], slots[1], config_.amsgrad ? slots[2] : nullptr,
               segment.size, gradient_args(context, segment.decay ? config_.l2_decay : 0.0), args(segment.decay, context));
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, bool decay, const StepContext& context) const {
    const kernels::AdamArgs a = args(decay, context);
    const torch::Tensor d = read_gradient(p, g, context, decay ? config_.l2_decay : 0.0);
    slots[0].mul_(a.beta_1).add_(d, 1.0 - a.beta_1);
    slots[1].mul_(a.beta_2).addcmul_(d, d, 1.0 - a.beta_2);
    if (config_.amsgrad) at::maximum_out(slots[2], slots[2], slots[1]);
    const torch::Tensor denominator = (slots[config_.amsgrad ? 2 : 1].sqrt() / a.sqrt_correction).add_(a.epsilon);
    if (a.shrink != 1.0) p.mul_(a.shrink);
    p.addcdiv_(slots[0], denominator, -a.step_size);
  }

 private:
  kernels::AdamArgs args(bool decay, const StepContext& context) const {
    const auto t = static_cast<double>(context.step);
    return {.step_size = context.learning_rate / (1.0 - std::pow(config_.beta_1, t)),
            .beta_1 = config_.beta_1,
            .beta_2 = config_.beta_2,
            .sqrt_correction = std::sqrt(1.0 - std::pow(config_.beta_2, t)),
            .epsilon = config_.epsilon,
            .shrink = decay ? 1.0 - context.learning_rate * config_.decoupled_decay : 1.0};
  }

  Config config_;
};

template <typename Options>
void check(const char* name, const Options& options) {
  require_fraction(name, "beta_1", options.beta_1);
  require_fraction(name, "beta_2", options.beta_2);
  require_not_negative(name, "epsilon", options.epsilon);
  require_not_negative(name, "weight_decay", options.weight_decay);
}

}  // namespace

Optimizer Adam(const AdamOptions& options) {
  check("Adam", options);
  const Config config{options.beta_1, options.beta_2, options.epsilon, options.amsgrad, options.weight_decay, 0.0};
  return {std::make_shared<AdamRule>("Adam", config), options.learning_rate, options.gradient, options.exclude_from_weight_decay};
}

Optimizer AdamW(const AdamWOptions& options) {
  check("AdamW", options);
  const Config config{options.beta_1, options.beta_2, options.epsilon, options.amsgrad, 0.0, options.weight_decay};
  return {std::make_shared<AdamRule>("AdamW", config), options.learning_rate, options.gradient, options.exclude_from_weight_decay};
}

}  // namespace cohort
