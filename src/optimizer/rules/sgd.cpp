// Stochastic gradient descent with momentum. In Keras' formulation the rate is part of the velocity, as in Sutskever et
// al. (2013); in torch::optim::SGD's it is not, so that a rate that changes acts on all of the velocity at once.
#include "cohort/optimizer.h"
#include "optimizer/rules/rule.h"

namespace cohort {

namespace {

// The two velocities mean different things, so they have different names in checkpoints.
std::vector<std::string> sgd_slots(const SgdOptions& options) {
  if (options.momentum == 0.0) return {};
  return {options.formulation == Formulation::kTorch ? "momentum_buffer" : "momentum"};
}

class SgdRule final : public Rule<SgdRule> {
 public:
  explicit SgdRule(const SgdOptions& options)
      : Rule("SGD", sgd_slots(options), surroundings(options.weight_decay, options.ema, options.formulation)),
        options_(options) {}

  template <typename P, typename T>
  void apply(const kernels::UpdateTable<P, T>& table, const Segment& segment, const StepContext& context) const {
    table.sgd(parameter_of<P>(segment), gradient_of<P>(segment), has_momentum() ? slot_of<T>(segment, 0) : nullptr,
              segment.size, reading(segment, context), args(segment.treatment, context));
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, Treatment treatment,
             const StepContext& context) const {
    const kernels::SgdArgs a = args(treatment, context);
    torch::Tensor d = read(p, g, treatment, context);
    if (has_momentum()) {
      torch::Tensor& velocity = slots[0];
      if (a.keep == 0.0) {
        velocity.copy_(d).mul_(a.fresh);
      } else {
        velocity.mul_(a.keep).add_(d, a.fresh);
      }
      d = options_.nesterov ? d.mul_(a.ahead).add_(velocity, a.momentum) : velocity;
    }
    p.sub_(d, a.learning_rate);
  }

 private:
  friend class Rule<SgdRule>;

  bool has_momentum() const { return options_.momentum > 0.0; }

  kernels::SgdArgs args(Treatment /*treatment*/, const StepContext& context) const {
    kernels::SgdArgs a{.learning_rate = context.learning_rate,
                       .momentum = options_.momentum,
                       .keep = options_.momentum,
                       .nesterov = options_.nesterov};
    if (options_.formulation != Formulation::kTorch) {
      a.fresh = a.ahead = context.learning_rate;
      if (has_momentum()) a.learning_rate = 1.0;
    } else if (context.step == 1) {
      a.keep = 0.0;  // the first velocity is the gradient itself, without dampening
    } else {
      a.fresh = 1.0 - options_.dampening;
    }
    return a;
  }

  SgdOptions options_;
};

}  // namespace

Optimizer SGD(const SgdOptions& options) {
  require_fraction("SGD", "momentum", options.momentum);
  require_not_negative("SGD", "dampening", options.dampening);
  require_torch("SGD", "dampening", options.dampening == 0.0, options.formulation);
  if (options.nesterov && (options.momentum <= 0.0 || options.dampening != 0.0)) {
    fail<InvalidArgument>("[optimizer] SGD: nesterov with momentum ", options.momentum, " and dampening ",
                          options.dampening, " came, a momentum above 0 and no dampening were wanted");
  }
  return make_optimizer(std::make_shared<SgdRule>(options), options);
}

}  // namespace cohort
