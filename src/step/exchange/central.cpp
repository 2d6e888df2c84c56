// Central storage on another device than the replicas', or without kernels: the sum of the gradients goes to the
// parameter device, one replica updates there, and all copy the result.
#include <ATen/Functions.h>

#include "cohort/trace.h"
#include "step/exchange/exchange.h"
#include "step/flat_gradients.h"
#include "step/update/tensors.h"
#include "strategy/core.h"

namespace cohort {

namespace {

// The values that are updated: replica 0's copy where it lies on the parameter device, else one made there.
std::vector<torch::Tensor> central_values(const StrategyCore& core, const FlatParameters& flat) {
  std::vector<torch::Tensor> values;
  for (const FlatGroup& group : flat.groups()) {
    const torch::Tensor& copy = group.copies.front();
    values.push_back(copy.to(core.parameter_device(0)));
  }
  return values;
}

class CentralExchange final : public Exchange {
 public:
  CentralExchange(StrategyCore& core, FlatParameters& flat, const Optimizer& rule)
      : Exchange(flat), core_(core), gradients_(flat), update_(flat, rule, central_values(core, flat)) {}

  Verdict step(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced, StepContext context) override {
    const torch::NoGradGuard no_grad;
    gradients_.pack(replica.local_id(), gradients);
    const TraceSpan span("compute", "update");
    core_.launch().meet(replica.local_id(), "minimize", nullptr,
                        [&](std::span<void* const>) { verdict_ = update_.update(add_up(reduced), context); });
    for (std::size_t g = 0; g < update_.values().size(); ++g) {
      torch::Tensor copy = flat_.groups()[g].copies[static_cast<std::size_t>(replica.local_id())];
      if (!copy.is_same(update_.values()[g])) copy.copy_(update_.values()[g]);
    }
    return verdict_;
  }

  Slots slots() const override { return update_.slots(); }
  void set_values(int local_id, const std::vector<torch::Tensor>& values) override {
    Exchange::set_values(local_id, values);
    for (std::size_t g = 0; g < values.size(); ++g) torch::Tensor(update_.values()[g]).copy_(values[g]);
  }

 private:
  // With `reduced` every replica has the sum already.
  std::vector<torch::Tensor> add_up(bool reduced) {
    std::vector<torch::Tensor> sums;
    for (std::size_t g = 0; g < update_.values().size(); ++g) {
      std::vector<torch::Tensor> sources;
      for (int r = 0; r < (reduced ? 1 : core_.num_local_replicas()); ++r) sources.push_back(gradients_.of(r)[g]);
      sums.push_back(torch::empty_like(update_.values()[g]));
      reduce_into(sums.back(), sources, ReduceOp::kSum);
    }
    return sums;
  }

  StrategyCore& core_;
  FlatGradients gradients_;
  TensorUpdate update_;
  Verdict verdict_ = false;  // written while all meet
};

}  // namespace

std::unique_ptr<Exchange> make_central_exchange(const ExchangeParts& parts) {
  return std::make_unique<CentralExchange>(parts.core, parts.flat, parts.rule);
}

}  // namespace cohort
