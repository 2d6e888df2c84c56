// RMSprop (Tieleman and Hinton, 2012), centered after Graves (2013), in the form of torch::optim::RMSprop.
#include "cohort/optimizer.h"
#include "optimizer/rules/rule.h"

namespace cohort {

namespace {

std::vector<std::string> slot_names(const RmspropOptions& options) {
  std::vector<std::string> names{"square_avg"};
  if (options.centered) names.emplace_back("grad_avg");
  if (options.momentum > 0.0) names.emplace_back("momentum_buffer");
  return names;
}

class RmspropRule final : public Rule<RmspropRule> {
 public:
  explicit RmspropRule(const RmspropOptions& options) : Rule("RMSprop", slot_names(options)), options_(options) {}

  template <typename T>
  void apply(const kernels::UpdateTable<T>& table, const Segment& segment, const StepContext& context) const {
    table.rmsprop(parameter_of<T>(segment), gradient_of<T>(segment), slot_of<T>(segment, 0),
                  options_.centered ? slot_of<T>(segment, 1) : nullptr,
                  options_.momentum > 0.0 ? slot_of<T>(segment, momentum_slot()) : nullptr, segment.size,
                  gradient_args(context, segment.decay ? options_.weight_decay : 0.0),
                  {.learning_rate = context.learning_rate,
                   .rho = options_.rho,
                   .momentum = options_.momentum,
                   .epsilon = options_.epsilon});
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, bool decay,
             const StepContext& context) const {
    const torch::Tensor d = read_gradient(p, g, context, decay ? options_.weight_decay : 0.0);
    slots[0].mul_(options_.rho).addcmul_(d, d, 1.0 - options_.rho);
    torch::Tensor variance = slots[0];
    if (options_.centered) {
      slots[1].mul_(options_.rho).add_(d, 1.0 - options_.rho);
      // Never negative but for rounding, whose root would be a NaN.
      variance = slots[0].addcmul(slots[1], slots[1], -1.0).clamp_min_(0.0);
    }
    torch::Tensor direction = d / variance.sqrt().add_(options_.epsilon);
    if (options_.momentum > 0.0) {
      torch::Tensor& buffer = slots[momentum_slot()];
      buffer.mul_(options_.momentum).add_(direction);
      direction = buffer;
    }
    p.sub_(direction, context.learning_rate);
  }

 private:
  std::size_t momentum_slot() const { return options_.centered ? 2 : 1; }

  RmspropOptions options_;
};

}  // namespace

Optimizer RMSprop(const RmspropOptions& options) {
  require_fraction("RMSprop", "rho", options.rho);
  require_fraction("RMSprop", "momentum", options.momentum);
  require_not_negative("RMSprop", "epsilon", options.epsilon);
  require_not_negative("RMSprop", "weight_decay", options.weight_decay);
  return {std::make_shared<RmspropRule>(options), options.learning_rate, options.gradient,
          options.exclude_from_weight_decay};
}

}  // namespace cohort
