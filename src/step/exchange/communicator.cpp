// Replicas on different devices, other cross-device ops than ring, or dtypes without kernels: gradients are packed into
// one flat run a replica and all-reduced in packs, and every replica updates its own copy with slots of its own.
#include "cohort/trace.h"
#include "step/exchange/exchange.h"
#include "step/flat_gradients.h"
#include "step/update/tensors.h"
#include "strategy/core.h"

namespace cohort {

namespace {

class CommunicatorExchange final : public Exchange {
 public:
  CommunicatorExchange(StrategyCore& core, FlatParameters& flat, const Optimizer& rule)
      : Exchange(flat), gradients_(flat), packs_(gradient_packs(core, flat)) {
    for (std::size_t r = 0; r < static_cast<std::size_t>(core.num_local_replicas()); ++r) {
      std::vector<torch::Tensor> values;
      for (const FlatGroup& group : flat.groups()) values.push_back(group.copies[r]);
      updates_.emplace_back(flat, rule, std::move(values));
    }
  }

  bool step(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced, StepContext context) override {
    const torch::NoGradGuard no_grad;
    gradients_.pack(replica.local_id(), gradients);
    const TraceSpan span("compute", "update");
    if (!reduced) all_reduce(replica);
    return updates_[static_cast<std::size_t>(replica.local_id())].update(gradients_.of(replica.local_id()), context);
  }

  Slots slots() const override { return updates_.front().slots(); }
  void spread_slots(const Slots& /*loaded*/, int64_t /*iterations*/) override {
    for (std::size_t r = 1; r < updates_.size(); ++r) updates_[r].copy_slots(updates_.front());
  }

 private:
  void all_reduce(Replica& replica) {
    const TraceSpan span("communication", "all-reduce");
    for (std::size_t g = 0; g < packs_.size(); ++g) {
      for (const Pack& pack : packs_[g]) {
        torch::Tensor message = gradients_.of(replica.local_id())[g].slice(0, pack.begin, pack.end);
        replica.communicator().all_reduce({&message, 1}, ReduceOp::kSum);
      }
    }
  }

  FlatGradients gradients_;
  std::vector<std::vector<Pack>> packs_;  // [group]
  std::vector<TensorUpdate> updates_;     // [replica]
};

}  // namespace

std::unique_ptr<Exchange> make_communicator_exchange(const ExchangeParts& parts) {
  return std::make_unique<CommunicatorExchange>(parts.core, parts.flat, parts.rule);
}

}  // namespace cohort
