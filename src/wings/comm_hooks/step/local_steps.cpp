#include "wings/comm_hooks/step/local_steps.h"

#include "base/fail.h"
#include "cohort/trace.h"
#include "step/exchange/over_workers.h"
#include "wings/comm_hooks/step/outer_step.h"

namespace cohort {

namespace {

void require_rule(const StrategyPlan& plan, const Optimizer& rule) {
  if (!rule.gradient().loss_scale && !rule.rule().keeps_averages()) return;
  fail<InvalidArgument>("[optimizer] ", rule.name(), ": has ", rule.gradient().loss_scale ? "a loss_scale" : "use_ema",
                        ", which workers have to agree on, and local_sgd.sync_every of ", plan.name, " is ",
                        plan.local_sgd.sync_every);
}

class LocalSteps final : public OverWorkers {
 public:
  explicit LocalSteps(const ExchangeParts& parts)
      : OverWorkers(parts, /*overlaps=*/false), outer_(flat_, core_.plan().local_sgd, core_.num_workers()) {}

  Verdict step(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced, StepContext context) override {
    const int me = replica.local_id();
    if (!outer_.is_local(context.step)) {
      return OverWorkers::step(replica, std::move(gradients), reduced, context);
    }
    if (me == 0) outer_.begin();
    // A loss is a share of the mean over the examples of all workers.
    if (!reduced) context.grad_scale *= core_.num_workers();
    Verdict verdict = OverWorkers::step(replica, std::move(gradients), reduced, context);
    if (outer_.ends(context.step)) {
      const TraceSpan span("communication", "exchange of the parameters with the other workers");
      core_.launch().arrive(me, "the exchange of the parameters");
      with_workers(me, [this] { outer_.bring_together(sums_, [this] { exchange_packs(); }); });
      take_first(me);
      core_.launch().depart(me);
    }
    return verdict;
  }

  void bring_together() override {
    if (!core_.any_worker("bring parameters together", outer_.is_apart())) return;
    outer_.begin();
    outer_.bring_together(sums_, [this] { exchange_packs(); });
    for (int r = 1; r < replicas_; ++r) take_first(r);
  }

  // Has the parameters and slots that this worker alone has, and the state of the outer step.
  std::vector<torch::Tensor> own_state() const override {
    std::vector<torch::Tensor> list = outer_.state();
    for (std::size_t g = 0; g < flat_.groups().size(); ++g) {
      list.push_back(flat_.groups()[g].copies.front().clone());
      for (const torch::Tensor& slot : update_.slots()[g]) list.push_back(slot.clone());
    }
    return list;
  }

  void load_own_state(std::span<const torch::Tensor> state) override {
    const std::size_t outer = outer_.state().size();
    outer_.load(state.first(outer));
    auto next = state.begin() + static_cast<std::ptrdiff_t>(outer);
    const auto put = [&](torch::Tensor home) {
      if (next->sizes() != home.sizes()) {
        fail<InvalidArgument>("[optimizer] load_accumulated: a worker's own parameters or slots have shape ",
                              next->sizes(), ", wanted ", home.sizes());
      }
      home.copy_(*next++);
    };
    for (std::size_t g = 0; g < flat_.groups().size(); ++g) {
      put(flat_.groups()[g].copies.front());
      for (const torch::Tensor& slot : update_.slots()[g]) put(slot);
    }
    for (int r = 1; r < replicas_; ++r) take_first(r);
  }
  void forget_own_state() override { outer_.forget(); }

 protected:
  void make_sums(int me, bool reduced) override {
    outer_.is_local(update_number()) ? make_own_sums(me, reduced) : OverWorkers::make_sums(me, reduced);
  }

 private:
  // Gives a replica the first one's parameters.
  void take_first(int me) const {
    for (const FlatGroup& group : flat_.groups()) {
      if (me != 0) group.copies[static_cast<std::size_t>(me)].copy_(group.copies.front());
    }
  }

  OuterStep outer_;
};

}  // namespace

std::unique_ptr<Exchange> make_local_steps_exchange(const ExchangeParts& parts) {
  require_rule(parts.core.plan(), parts.rule);
  return std::make_unique<LocalSteps>(parts);
}

}  // namespace cohort
