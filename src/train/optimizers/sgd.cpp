#include "cohort/optimizer.h"
#include "train/optimizers/rule.h"

namespace cohort {

namespace {

class SgdRule final : public Rule<SgdRule> {
 public:
  explicit SgdRule(const SgdOptions& options)
      : Rule("SGD", options.momentum > 0.0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{}),
        options_(options) {}

  template <typename T>
  void apply(const kernels::UpdateTable<T>& table, const Segment& segment, T* const* slots, const StepContext& context) const {
    const kernels::SgdArgs args{.learning_rate = context.learning_rate,
                                .momentum = options_.momentum,
                                .dampening = options_.dampening,
                                .nesterov = options_.nesterov,
                                .first = context.step == 1};
    table.sgd(typed<T>(segment.parameter), typed<T>(segment.gradient), options_.momentum > 0.0 ? slots[0] : nullptr, segment.size,
              gradient_args(context, segment.decay ? options_.weight_decay : 0.0), args);
  }

  void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, bool decay, const StepContext& context) const {
    torch::Tensor d = read_gradient(p, g, context, decay ? options_.weight_decay : 0.0);
    if (options_.momentum > 0.0) {
      torch::Tensor& buffer = slots[0];
      if (context.step == 1) {
        buffer.copy_(d);
      } else {
        buffer.mul_(options_.momentum).add_(d, 1.0 - options_.dampening);
      }
      d = options_.nesterov ? d.add(buffer, options_.momentum) : buffer;
    }
    p.sub_(d, context.learning_rate);
  }

 private:
  SgdOptions options_;
};

}  // namespace

Optimizer SGD(const SgdOptions& options) {
  require_fraction("SGD", "momentum", options.momentum);
  require_not_negative("SGD", "weight_decay", options.weight_decay);
  if (options.nesterov && (options.momentum <= 0.0 || options.dampening != 0.0)) {
    fail<InvalidArgument>("[optimizer] SGD: nesterov needs a momentum and no dampening, got momentum ", options.momentum,
                          " and dampening ", options.dampening);
  }
  return {std::make_shared<SgdRule>(options), options.learning_rate, options.gradient, options.exclude_from_weight_decay};
}

}  // namespace cohort
