// Nadam (Dozat, "Incorporating Nesterov Momentum into Adam", 2016), with its schedule of the momentum: u_t = beta_1 *
// (1 - 0.96^t / 2).
#include "cohort/more_update_rules.h"
#include "wings/optimizers/optimizer/rules/more_rule.h"

namespace cohort {

namespace {

// The momenta of step t: u_t, u_(t+1), and u_1 * ... * u_t.
struct Momenta {
  double now = 0.0;
  double next = 0.0;
  double product = 1.0;
};

// A thread that asks for the same step again, as it does for all segments, or for the next one, gets it from what it
// knows. Otherwise the product is made anew; it is 0 after some thousands of factors.
Momenta momenta_at(double beta_1, int64_t step) {
  struct Memo {
    double beta_1 = -1.0;
    int64_t step = 0;
    double product = 1.0;
  };
  const auto at = [beta_1](int64_t t) { return beta_1 * (1.0 - 0.5 * std::pow(0.96, static_cast<double>(t))); };
  thread_local Memo memo;
  if (memo.beta_1 != beta_1 || memo.step > step) memo = {.beta_1 = beta_1};
  while (memo.step < step && memo.product > 0.0) memo.product *= at(++memo.step);
  memo.step = step;
  return {.now = at(step), .next = at(step + 1), .product = memo.product};
}

class NadamRule final : public MoreRule<NadamRule> {
 public:
  explicit NadamRule(const NadamOptions& options)
      : MoreRule("Nadam", {"exp_avg", "exp_avg_sq"}, {.weight_decay = options.weight_decay, .ema = options.ema}),
        options_(options) {}

  template <typename P, typename T>
  void apply(const kernels::MoreTable<P, T>& table, const Segment& segment, const StepContext& context) const {
    table.nadam(parameter_of<P>(segment), gradient_of<P>(segment), slot_of<T>(segment, 0), slot_of<T>(segment, 1),
                segment.size, reading(segment, context), args(segment.treatment, context));
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, Treatment treatment,
             const StepContext& context) const {
    const kernels::NadamArgs a = args(treatment, context);
    const torch::Tensor d = read(p, g, treatment, context);
    slots[0].mul_(a.beta_1).add_(d, 1.0 - a.beta_1);
    slots[1].mul_(a.beta_2).addcmul_(d, d, 1.0 - a.beta_2);
    const torch::Tensor denominator = slots[1].sqrt().add_(a.epsilon);
    p.sub_((slots[0] * a.of_mean).add_(d, a.of_gradient).div_(denominator));
  }

 private:
  friend class Rule<NadamRule>;

  kernels::NadamArgs args(Treatment /*treatment*/, const StepContext& context) const {
    const BiasCorrections corrections = bias_corrections(options_.beta_1, options_.beta_2, context.step);
    const Momenta momenta = momenta_at(options_.beta_1, context.step);
    const double rate = context.learning_rate * corrections.root_second;
    return {.beta_1 = options_.beta_1,
            .beta_2 = options_.beta_2,
            .of_mean = rate * momenta.next / (1.0 - momenta.product * momenta.next),
            .of_gradient = rate * (1.0 - momenta.now) / (1.0 - momenta.product),
            .epsilon = options_.epsilon * corrections.root_second};
  }

  NadamOptions options_;
};

}  // namespace

Optimizer Nadam(const NadamOptions& options) {
  require_fraction("Nadam", "beta_1", options.beta_1);
  require_fraction("Nadam", "beta_2", options.beta_2);
  require_not_negative("Nadam", "epsilon", options.epsilon);
  return make_optimizer(std::make_shared<NadamRule>(options), options);
}

}  // namespace cohort
