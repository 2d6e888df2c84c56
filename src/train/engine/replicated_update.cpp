// Replicas on different devices, other cross-device ops than ring, or dtypes without kernels: gradients are packed into
// one flat run a replica, all-reduced in packs, and every replica updates its own copy with its own slots. Under
// central storage the sum goes to the parameter device, one replica updates there, and all copy the result.
#include <ATen/Functions.h>

#include <cmath>

#include "base/flush_denormals.h"
#include "cohort/trace.h"
#include "strategy/core.h"
#include "train/engine/update_engine.h"

namespace cohort {

namespace {

class ReplicatedUpdate final : public UpdateEngine {
 public:
  ReplicatedUpdate(StrategyCore& core, FlatParameters& flat, const Optimizer& rule)
      : core_(core), flat_(flat), rule_(rule), replicas_(core.num_local_replicas()) {
    const bool remote_parameters = core.central() && !core.shares_memory();
    const int holders = core.central() ? 1 : replicas_;
    for (int h = 0; h < holders; ++h) {
      std::vector<torch::Tensor> masters;
      for (const FlatGroup& group : flat.groups()) {
        const torch::Tensor& copy = group.copies[static_cast<std::size_t>(h)];
        masters.push_back(remote_parameters ? copy.to(core.parameter_device(0), false, /*copy=*/true) : copy);
      }
      masters_.push_back(std::move(masters));
      slots_.push_back(slots_for(masters_.back()));
    }
    for (int r = 0; r < replicas_; ++r) {
      std::vector<torch::Tensor> own;
      for (const FlatGroup& group : flat.groups()) {
        own.push_back(torch::zeros_like(group.copies[static_cast<std::size_t>(r)]));
      }
      gradients_.push_back(std::move(own));
    }
    packs_ = gradient_packs(core, flat);
  }

  bool step(Replica& replica, const std::vector<torch::Tensor>& gradients, bool reduced, StepContext context,
            double factor) override {
    const torch::NoGradGuard no_grad;
    const auto me = static_cast<std::size_t>(replica.local_id());
    pack(me, gradients);
    context.grad_scale *= factor;
    const TraceSpan span("compute", "update");
    if (core_.central()) return step_centrally(replica, reduced, context);
    if (!reduced) all_reduce(replica);
    return update(me, gradients_[me], context);
  }

  const std::vector<std::vector<torch::Tensor>>& slots() const override { return slots_.front(); }

  void spread_slots(int64_t /*iterations*/) override {
    const torch::NoGradGuard no_grad;
    for (std::size_t h = 1; h < slots_.size(); ++h) {
      for (std::size_t g = 0; g < slots_[h].size(); ++g) {
        for (std::size_t s = 0; s < slots_[h][g].size(); ++s) slots_[h][g][s].copy_(slots_[0][g][s]);
      }
    }
  }

 private:
  std::vector<std::vector<torch::Tensor>> slots_for(const std::vector<torch::Tensor>& masters) const {
    std::vector<std::vector<torch::Tensor>> slots = make_slots(flat_, rule_.rule(), 0);
    for (std::size_t g = 0; g < slots.size(); ++g) {
      for (torch::Tensor& slot : slots[g]) slot = slot.to(masters[g].device());
    }
    return slots;
  }

  void pack(std::size_t me, const std::vector<torch::Tensor>& gradients) {
    for (std::size_t p = 0; p < gradients.size(); ++p) {
      torch::Tensor home = flat_.part_of(gradients_[me][flat_.parameters()[p].group], p);
      if (!gradients[p].defined()) {
        home.zero_();
      } else {
        home.copy_(gradients[p].is_sparse() ? gradients[p].to_dense() : gradients[p]);
      }
    }
  }

  void all_reduce(Replica& replica) {
    const TraceSpan span("communication", "all-reduce");
    const auto me = static_cast<std::size_t>(replica.local_id());
    for (std::size_t g = 0; g < packs_.size(); ++g) {
      for (const Pack& pack : packs_[g]) {
        torch::Tensor message = gradients_[me][g].slice(0, pack.begin, pack.end);
        replica.communicator().all_reduce({&message, 1}, ReduceOp::kSum);
      }
    }
  }

  bool step_centrally(Replica& replica, bool reduced, const StepContext& context) {
    core_.meet(replica.local_id(), "minimize", nullptr, [&](std::span<void* const>) {
      std::vector<torch::Tensor> sums;
      for (std::size_t g = 0; g < masters_.front().size(); ++g) {
        sums.push_back(torch::empty_like(masters_.front()[g]));
        std::vector<torch::Tensor> sources;
        for (int r = 0; r < (reduced ? 1 : replicas_); ++r)
          sources.push_back(gradients_[static_cast<std::size_t>(r)][g]);
        reduce_into(sums.back(), sources, ReduceOp::kSum);
      }
      updated_centrally_ = update(0, sums, context);
    });
    for (std::size_t g = 0; g < masters_.front().size(); ++g) {
      torch::Tensor copy = flat_.groups()[g].copies[static_cast<std::size_t>(replica.local_id())];
      if (copy.data_ptr() != masters_.front()[g].data_ptr()) copy.copy_(masters_.front()[g]);
    }
    return updated_centrally_;
  }

  // Updates the masters and slots of one holder. Runs of parameters that are treated alike go in one call.
  bool update(std::size_t holder, const std::vector<torch::Tensor>& gradients, StepContext context) {
    const FlushDenormals flush;
    const bool scaled = rule_.gradient().loss_scale.has_value();
    if (rule_.gradient().global_clipnorm > 0.0 || scaled) {
      double squared_norm = 0.0;
      for (const torch::Tensor& flat : gradients) {
        const double norm = flat.norm(2, torch::kDouble).item<double>();
        squared_norm += norm * norm;
      }
      if (scaled && !std::isfinite(squared_norm)) return false;
      context.grad_scale *=
          clip_factor(squared_norm * context.grad_scale * context.grad_scale, rule_.gradient().global_clipnorm);
    }
    const bool alike = !rule_.rule().needs_norms();
    for (std::size_t g = 0; g < gradients.size(); ++g) {
      const auto& members = flat_.groups()[g].members;
      for (std::size_t first = 0; first < members.size();) {
        std::size_t last = first + 1;
        const bool decay = flat_.parameters()[members[first]].decay;
        while (alike && last < members.size() && flat_.parameters()[members[last]].decay == decay) ++last;
        update_run(holder, g, members[first], members[last - 1], gradients[g], decay, context);
        first = last;
      }
    }
    return true;
  }

  void update_run(std::size_t holder, std::size_t g, std::size_t first, std::size_t last, const torch::Tensor& gradient,
                  bool decay, const StepContext& context) {
    const int64_t begin = flat_.parameters()[first].offset;
    const int64_t end = flat_.parameters()[last].offset + flat_.parameters()[last].size;
    std::vector<torch::Tensor> slots;
    for (const torch::Tensor& slot : slots_[holder][g]) slots.push_back(slot.slice(0, begin, end));
    rule_.rule().update(masters_[holder][g].slice(0, begin, end), gradient.slice(0, begin, end), slots, decay, context);
  }

  StrategyCore& core_;
  FlatParameters& flat_;
  Optimizer rule_;
  int replicas_;
  std::vector<std::vector<torch::Tensor>> masters_;             // [holder][group]
  std::vector<std::vector<std::vector<torch::Tensor>>> slots_;  // [holder][group][slot]
  std::vector<std::vector<torch::Tensor>> gradients_;           // [replica][group], flat
  std::vector<std::vector<Pack>> packs_;                        // [group]
  bool updated_centrally_ = false;                              // written while all meet
};

}  // namespace

std::unique_ptr<UpdateEngine> make_replicated_update(StrategyCore& core, FlatParameters& flat, const Optimizer& rule) {
  return std::make_unique<ReplicatedUpdate>(core, flat, rule);
}

}  // namespace cohort
