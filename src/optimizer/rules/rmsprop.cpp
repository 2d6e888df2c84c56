// RMSprop (Tieleman and Hinton, 2012), centered after Graves (2013). Keras has epsilon inside of the root and the rate
// in the momentum; torch::optim::RMSprop has epsilon beside the root and the rate outside. Keras' legacy one does as
// Keras with momentum, and as torch without.
#include "cohort/optimizer.h"
#include "optimizer/rules/rule.h"

namespace cohort {

namespace {

// The two kinds of momentum mean different things, so they have different names in checkpoints.
std::vector<std::string> rmsprop_slots(const RmspropOptions& options) {
  std::vector<std::string> names{"square_avg"};
  if (options.centered) names.emplace_back("grad_avg");
  if (options.momentum == 0.0) return names;
  names.emplace_back(options.formulation == Formulation::kTorch ? "momentum_buffer" : "momentum");
  return names;
}

class RmspropRule final : public Rule<RmspropRule> {
 public:
  explicit RmspropRule(const RmspropOptions& options)
      : Rule("RMSprop", rmsprop_slots(options), surroundings(options.weight_decay, options.ema, options.formulation)),
        options_(options) {}

  template <typename P, typename T>
  void apply(const kernels::UpdateTable<P, T>& table, const Segment& segment, const StepContext& context) const {
    table.rmsprop(parameter_of<P>(segment), gradient_of<P>(segment), slot_of<T>(segment, 0),
                  options_.centered ? slot_of<T>(segment, 1) : nullptr,
                  options_.momentum > 0.0 ? slot_of<T>(segment, momentum_slot()) : nullptr, segment.size,
                  reading(segment, context), args(segment.treatment, context));
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, Treatment treatment,
             const StepContext& context) const {
    const kernels::RmspropArgs a = args(treatment, context);
    const torch::Tensor d = read(p, g, treatment, context);
    slots[0].mul_(a.rho).addcmul_(d, d, 1.0 - a.rho);
    torch::Tensor variance = slots[0];
    if (options_.centered) {
      slots[1].mul_(a.rho).add_(d, 1.0 - a.rho);
      // Never negative but for rounding, whose root would be a NaN.
      variance = slots[0].addcmul(slots[1], slots[1], -1.0).clamp_min_(0.0);
    }
    torch::Tensor direction = d.mul(a.fresh_rate).div_((variance + a.inside).sqrt_().add_(a.epsilon));
    if (options_.momentum > 0.0) {
      torch::Tensor& buffer = slots[momentum_slot()];
      buffer.mul_(options_.momentum).add_(direction);
      direction = buffer;
    }
    p.sub_(direction, a.learning_rate);
  }

 private:
  friend class Rule<RmspropRule>;

  std::size_t momentum_slot() const { return options_.centered ? 2 : 1; }

  kernels::RmspropArgs args(Treatment /*treatment*/, const StepContext& context) const {
    const bool torch = options_.formulation == Formulation::kTorch;
    const bool beside = torch || (options_.formulation == Formulation::kLegacy && options_.momentum == 0.0);
    return {.learning_rate = torch ? context.learning_rate : 1.0,
            .fresh_rate = torch ? 1.0 : context.learning_rate,
            .rho = options_.rho,
            .momentum = options_.momentum,
            .inside = beside ? 0.0 : options_.epsilon,
            .epsilon = beside ? options_.epsilon : 0.0};
  }

  RmspropOptions options_;
};

}  // namespace

Optimizer RMSprop(const RmspropOptions& options) {
  require_fraction("RMSprop", "rho", options.rho);
  require_fraction("RMSprop", "momentum", options.momentum);
  require_not_negative("RMSprop", "epsilon", options.epsilon);
  return make_optimizer(std::make_shared<RmspropRule>(options), options);
}

}  // namespace cohort
