// A training step of one replica:
//
//   loss --backward--> gradients --exchange--> sums --scaling, clipping--> update --> parameters of all copies
//
// Backward and the count of steps are here. The exchange (exchange/exchange.h has the table that chooses one) sums the
// gradients of all replicas, follows scaling.h, and hands the sums to an update (update/), which calls the rule.
#include "step/step.h"

#include "base/access.h"
#include "base/fail.h"
#include "cohort/strategy.h"
#include "cohort/trace.h"
#include "device/backend.h"
#include "strategy/core.h"

namespace cohort {

Step::Step(MirroredModule module, Optimizer rule)
    : module_(std::move(module)),
      rule_(std::move(rule)),
      flat_(module_, rule_),
      exchange_(make_exchange(module_, flat_, rule_)),
      state_(rule_, flat_, *exchange_) {
  for (const FlatParameter& parameter : flat_.parameters()) names_.push_back(parameter.name);
}

void Step::minimize(Replica& replica, const torch::Tensor& loss) {
  const bool keeps_whole = rule_.gradient().gradient_accumulation_steps > 1 && !exchange_->shares_gradients();
  if (keeps_whole) return apply_gradients(replica, gradients(replica, loss), /*reduced=*/false);
  require_loss(replica, loss);
  {
    const TraceSpan span("compute", "backward");
    exchange_->backward(replica, scaled(replica, loss));
  }
  update(replica, flat_.take_gradients(replica.local_id()), /*reduced=*/false,
         state_.of(replica.local_id()).scaler.scale());
}

std::vector<torch::Tensor> Step::gradients(Replica& replica, const torch::Tensor& loss) {
  require_loss(replica, loss);
  scaled(replica, loss).backward();
  const double scale = state_.of(replica.local_id()).scaler.scale();
  std::vector<torch::Tensor> taken = flat_.take_gradients(replica.local_id());
  for (torch::Tensor& gradient : taken) {
    if (scale != 1.0 && gradient.defined()) gradient = gradient / scale;
  }
  return taken;
}

void Step::apply_gradients(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced) {
  update(replica, std::move(gradients), reduced, 1.0);
}

// `loss_scale`: what the gradients are multiplied with already.
void Step::update(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced, double loss_scale) {
  require_own(replica);
  require_gradients(gradients);
  require_recordable(replica);
  ReplicaProgress& progress = state_.of(replica.local_id());
  const int64_t calls = rule_.gradient().gradient_accumulation_steps;
  const bool by_shards = calls > 1 && exchange_->shares_gradients();
  if (by_shards) {
    gradients = scatter(replica, progress, std::move(gradients), reduced, loss_scale);
    loss_scale = 1.0;
  }
  if (!accumulate(progress, gradients)) return;
  const double scale = 1.0 / (loss_scale * fixed_scale() * static_cast<double>(calls));
  const bool updated = by_shards ? exchange_->update(replica, std::move(gradients), context(replica.local_id(), scale))
                                 : exchange(replica, std::move(gradients), reduced, scale);
  if (updated) ++progress.iterations;
  progress.scaler.note(updated);
  StrategyCore& core = Access::core(replica);
  if (!core.joins()) core.backend(replica.local_id()).flush(replica.device());  // else the exchange has begun it
}

// Returns the sums of the replica's shard, not multiplied with the scale of the loss, which may be another one when
// they are applied.
std::vector<torch::Tensor> Step::scatter(Replica& replica, ReplicaProgress& progress,
                                         std::vector<torch::Tensor> gradients, bool reduced, double loss_scale) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> sums = exchange_->scatter(replica, std::move(gradients), reduced);
  for (torch::Tensor& sum : sums) {
    if (loss_scale != 1.0) sum.div_(loss_scale);
  }
  // Those that a checkpoint has are every replica's own.
  if (!progress.loaded.empty()) progress.sums = exchange_->scatter(replica, std::exchange(progress.loaded, {}), false);
  return sums;
}

// Adds the gradients to those of the calls before. True: enough came, and `gradients` are their sums.
bool Step::accumulate(ReplicaProgress& progress, std::vector<torch::Tensor>& gradients) const {
  const int64_t every = rule_.gradient().gradient_accumulation_steps;
  if (every == 1) return true;
  const torch::NoGradGuard no_grad;
  progress.sums.resize(gradients.size());
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    torch::Tensor& sum = progress.sums[p];
    if (!gradients[p].defined()) continue;
    sum = sum.defined() ? sum.add_(gradients[p]) : gradients[p].detach().clone();
  }
  if (++progress.accumulated < every) return false;
  progress.accumulated = 0;
  gradients = std::exchange(progress.sums, {});
  return true;
}

torch::Tensor Step::scaled(const Replica& replica, const torch::Tensor& loss) const {
  const double scale = state_.of(replica.local_id()).scaler.scale() * fixed_scale();
  return scale == 1.0 ? loss : loss * scale;
}

// Returns what the loss is multiplied with besides the scale that follows the gradients.
double Step::fixed_scale() const {
  const double factor = rule_.gradient().loss_scale_factor;
  return factor == 0.0 ? 1.0 : factor;
}

void Step::require_own(const Replica& replica) const {
  if (&Access::core(replica) == Access::core(module_).get()) return;
  fail<FailedPrecondition>("[optimizer] ", rule_.name(),
                           ": made under another strategy than the replica it is used in");
}

void Step::require_loss(const Replica& replica, const torch::Tensor& loss) const {
  require_own(replica);
  if (!loss.defined() || loss.numel() != 1) {
    fail<InvalidArgument>("[optimizer] minimize: needs a scalar loss, got ",
                          loss.defined() ? c10::str("shape ", loss.sizes()) : std::string("an undefined tensor"),
                          "; Replica::global_mean makes one of per-example losses");
  }
  if (!loss.requires_grad()) {
    fail<InvalidArgument>("[optimizer] minimize: the loss does not depend on any parameter that requires a gradient");
  }
}

void Step::require_gradients(const std::vector<torch::Tensor>& gradients) const {
  if (gradients.size() != names_.size()) {
    fail<InvalidArgument>("[optimizer] apply_gradients: got ", gradients.size(),
                          " gradients, wanted one for each of the ", names_.size(), " parameters");
  }
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    const FlatParameter& parameter = flat_.parameters()[p];
    if (!gradients[p].defined() || gradients[p].sizes() == c10::IntArrayRef(parameter.shape)) continue;
    fail<InvalidArgument>("[optimizer] apply_gradients: the gradient of ", parameter.name, " has shape ",
                          gradients[p].sizes(), ", the parameter ", c10::IntArrayRef(parameter.shape));
  }
}

}  // namespace cohort
