// Stochastic gradient descent with momentum, in the form of torch::optim::SGD (Sutskever et al., 2013, with the
// learning rate outside of the velocity).
#include "cohort/optimizer.h"
#include "optimizer/rules/rule.h"

namespace cohort {

namespace {

class SgdRule final : public Rule<SgdRule> {
 public:
  explicit SgdRule(const SgdOptions& options)
      : Rule("SGD", options.momentum > 0.0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{}),
        options_(options) {}

  template <typename T>
  void apply(const kernels::UpdateTable<T>& table, const Segment& segment, const StepContext& context) const {
    // The first velocity is the gradient itself, without dampening.
    const bool first = context.step == 1;
    table.sgd(parameter_of<T>(segment), gradient_of<T>(segment), has_momentum() ? slot_of<T>(segment, 0) : nullptr,
              segment.size, gradient_args(context, segment.decay ? options_.weight_decay : 0.0),
              {.learning_rate = context.learning_rate,
               .momentum = options_.momentum,
               .keep = first ? 0.0 : options_.momentum,
               .fresh = first ? 1.0 : 1.0 - options_.dampening,
               .nesterov = options_.nesterov});
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, bool decay,
             const StepContext& context) const {
    torch::Tensor d = read_gradient(p, g, context, decay ? options_.weight_decay : 0.0);
    if (has_momentum()) {
      torch::Tensor& velocity = slots[0];
      if (context.step == 1) {
        velocity.copy_(d);
      } else {
        velocity.mul_(options_.momentum).add_(d, 1.0 - options_.dampening);
      }
      d = options_.nesterov ? d.add_(velocity, options_.momentum) : velocity;
    }
    p.sub_(d, context.learning_rate);
  }

 private:
  bool has_momentum() const { return options_.momentum > 0.0; }

  SgdOptions options_;
};

}  // namespace

Optimizer SGD(const SgdOptions& options) {
  require_fraction("SGD", "momentum", options.momentum);
  require_not_negative("SGD", "dampening", options.dampening);
  require_not_negative("SGD", "weight_decay", options.weight_decay);
  if (options.nesterov && (options.momentum <= 0.0 || options.dampening != 0.0)) {
    fail<InvalidArgument>("[optimizer] SGD: nesterov with momentum ", options.momentum, " and dampening ",
                          options.dampening, " came, a momentum above 0 and no dampening were wanted");
  }
  return {std::make_shared<SgdRule>(options), options.learning_rate, options.gradient,
          options.exclude_from_weight_decay};
}

}  // namespace cohort
