// A training step of one replica:
//
//   loss --backward--> gradients --exchange--> sums --scaling, clipping--> update --> parameters of all copies
//
// Backward and the count of steps are here. The exchange (exchange/exchange.h has the table that chooses one) sums the
// gradients of all replicas, follows scaling.h, and hands the sums to an update (update/), which calls the rule.
#include "step/step.h"

#include "base/access.h"
#include "base/extension.h"
#include "base/fail.h"
#include "base/tracer.h"
#include "cohort/strategy.h"
#include "cohort/trace.h"
#include "device/backend.h"
#include "step/exchange/in_shards.h"
#include "step/step_engine.h"
#include "step/step_in_parts.h"
#include "strategy/combinations.h"
#include "strategy/context.h"
#include "strategy/core.h"
#include "strategy/replica_scope.h"
#include "strategy/worker_group.h"

namespace cohort {

Step::Step(MirroredModule module, Optimizer rule) : module_(std::move(module)), rule_(std::move(rule)) {
  StrategyCore& core = *Access::core(module_);
  if (core.plan().in_microbatches) in_parts_ = extensions<MakeStepInParts>().front().make();
  build();
  if (core.joins() && rule_.gradient().gradient_accumulation_steps > 1) {
    state_->keep_sums();
    core.begin_outside();  // they are no part of the first step
  }
  call_ = c10::str("minimize of optimizer ", core.optimizers().add(*this), " of the strategy (", rule_.name(), " of ",
                   names_.front(), names_.size() > 1 ? ", ..." : "", ")");
}

Step::~Step() {
  Access::core(module_)->optimizers().remove(*this);
}

// leave() that failed has left neither.
void Step::drop_step() {
  if (flat_) flat_->drop_gradients();
  if (exchange_) exchange_->drop_step();
}

void Step::build() {
  flat_ = std::make_unique<FlatParameters>(module_, rule_);
  if (in_parts_) in_parts_->laid_out(*this);
  exchange_ = make_exchange(module_, *flat_, rule_);
  state_ = std::make_unique<OptimizerState>(*Access::core(module_), rule_, *flat_, *exchange_);
  names_.clear();
  for (const FlatParameter& parameter : flat_->parameters()) names_.push_back(parameter.name);
  constrained_ = constrained_modules(module_, c10::str("[optimizer] ", rule_.name(), ":"));
  kept_ = std::vector<Kept>(static_cast<std::size_t>(Access::core(module_)->num_local_replicas()));
}

void Step::leave(const std::function<void()>& make_absent, const std::vector<std::size_t>& left) {
  const std::unique_ptr<FlatParameters> flat_before = std::move(flat_);
  const std::unique_ptr<Exchange> exchange_before = std::move(exchange_);
  const std::unique_ptr<OptimizerState> state_before = std::move(state_);
  make_absent();
  build();
  state_->go_on_from(*state_before, *exchange_before, *flat_before, left);
}

HeldBytes Step::held_bytes() const {
  const StateBytes bytes = state_bytes();
  return {.parameters = bytes.parameters, .gradients = bytes.gradients, .slots = bytes.slots};
}

void Step::minimize(Replica& replica, const torch::Tensor& loss) {
  if (ReplicaScope* const scope = thread_context().replica_scope) {
    require_loss(replica, loss);
    return in_parts_->minimize(*this, *scope, replica, loss);
  }
  const bool keeps_whole = rule_.gradient().gradient_accumulation_steps > 1 && exchange_->shards() == nullptr;
  if (keeps_whole) return apply_gradients(replica, gradients(replica, loss), /*reduced=*/false);
  require_loss(replica, loss);
  if (Access::core(replica).optimizers().several()) meet(replica);
  backward(replica, scaled(replica, loss));
  std::vector<torch::Tensor> own = flat_->take_gradients(replica.local_id());
  flat_->note_reached(replica.local_id(), own);
  update(replica, {.gradients = std::move(own), .scaled = true});
}

void Step::backward(Replica& replica, const torch::Tensor& loss) {
  const TraceSpan span("compute", "backward");
  if (const StepEngine* const own = engine()) return own->backward(*this, replica, loss);
  exchange_->backward(replica, loss);
}

const StepEngine* Step::engine() {
  const Tracer* const tracer = Tracer::current();
  if (tracer == nullptr) return nullptr;
  if (tracer->steps() == nullptr) fail<Internal>("[optimizer] a step came where a tracer has no engine for steps");
  return tracer->steps();
}

std::vector<torch::Tensor> Step::gradients(Replica& replica, const torch::Tensor& loss) {
  require_whole_model("gradients()");
  require_loss(replica, loss);
  flat_->backward(replica.local_id(), scaled(replica, loss));
  std::vector<torch::Tensor> taken = flat_->take_gradients(replica.local_id());
  flat_->note_reached(replica.local_id(), taken);
  if (!rule_.gradient().loss_scale) return taken;
  const StepEngine* const own = engine();
  const double scale = own != nullptr ? 1.0 : state_->of(replica.local_id()).scaler.scale();
  const torch::Tensor renewed = own != nullptr ? own->loss_scale(*this, replica, loss, 1.0) : torch::Tensor();
  for (torch::Tensor& gradient : taken) {
    if (!gradient.defined()) continue;
    if (own != nullptr) {
      gradient = gradient / renewed;
    } else if (scale != 1.0) {
      gradient = gradient / scale;
    }
  }
  return taken;
}

void Step::apply_gradients(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced) {
  require_whole_model("apply_gradients()");
  require_own(replica);
  require_gradients(gradients);
  join(replica);
  update(replica, {.gradients = std::move(gradients), .reduced = reduced});
}

void Step::meet(const Replica& replica) const {
  if (engine() != nullptr || BesideRuns::here()) return;
  StrategyCore& core = Access::core(replica);
  core.launch().meet(replica.local_id(), call_, nullptr, [&](std::span<void* const>) {
    if (core.optimizers().several()) core.workers().world().gather_numbers(call_, {});
  });
}

void Step::join(const Replica& replica) const {
  const bool adds_up = rule_.gradient().gradient_accumulation_steps > 1;
  if (adds_up || Access::core(replica).optimizers().several()) meet(replica);
}

void Step::update(Replica& replica, Given given) {
  if (const StepEngine* const own = engine()) {
    if (!constrained_.empty()) {
      require_pair(c10::str("[optimizer] ", rule_.name(), ":"),
                   {.feature = kConstraints, .said = "the model has constraints"},
                   {.feature = kGraphs, .said = "its steps are to be functions"});
    }
    return own->update(*this, replica, std::move(given));
  }
  ReplicaProgress& progress = state_->of(replica.local_id());
  const int64_t calls = rule_.gradient().gradient_accumulation_steps;
  ExchangeInShards* const shards = calls > 1 ? exchange_->shards() : nullptr;
  if (shards != nullptr) {
    given.gradients = scatter(*shards, replica, progress, std::move(given.gradients), given.reduced,
                              given.scaled ? progress.scaler.scale() : 1.0);
    given.scaled = false;
  }
  if (calls > 1) {
    add(progress, given.gradients);
    if (++progress.accumulated < calls) return;
    progress.accumulated = 0;
    given.gradients = take_sums(progress);
  }
  const StepContext now = context(replica.local_id(), given.scaled);
  progress.pending.push_back(shards != nullptr
                                 ? shards->update(replica, std::move(given.gradients), now)
                                 : exchange_->step(replica, std::move(given.gradients), given.reduced, now));
  constrain(replica, progress.pending.back());
  const Kept& kept = kept_[static_cast<std::size_t>(replica.local_id())];
  if (kept.note) kept.note(progress.pending.back());
  StrategyCore& core = Access::core(replica);
  if (!core.joins()) core.backend(replica.local_id()).flush(replica.device());  // else the exchange has begun it
}

void Step::constrain(const Replica& replica, const Verdict& verdict) const {
  if (constrained_.empty() || verdict.is_left_out()) return;
  for (const Constrained* const module : constrained_[static_cast<std::size_t>(replica.local_id())]) {
    module->constrain(verdict.there());
  }
}

// Returns the sums of the replica's shard, not multiplied with the scale of the loss, which may be another one when
// they are applied.
std::vector<torch::Tensor> Step::scatter(ExchangeInShards& shards, Replica& replica, ReplicaProgress& progress,
                                         std::vector<torch::Tensor> gradients, bool reduced, double loss_scale) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> sums = shards.scatter(replica, std::move(gradients), reduced);
  for (torch::Tensor& sum : sums) {
    if (loss_scale != 1.0) sum.div_(loss_scale);
  }
  // Those that a checkpoint has are every replica's own.
  if (!progress.loaded.empty()) progress.sums = shards.scatter(replica, std::exchange(progress.loaded, {}), false);
  return sums;
}

// Returns the numbers of the replica's next update.
StepContext Step::context(int local_id, bool scaled) const {
  const ReplicaProgress& progress = state_->of(local_id);
  return context_after(progress.iterations, scaled ? progress.scaler.scale() : 1.0);
}

StepContext Step::context_after(int64_t iterations, double loss_scale) const {
  const auto calls = static_cast<double>(rule_.gradient().gradient_accumulation_steps);
  StepContext now = step_context(rule_.gradient(), state_->schedule(), iterations);
  now.grad_scale = 1.0 / (loss_scale * fixed_scale() * calls);
  return now;
}

// Adds the gradients to those of the calls before.
void Step::add(ReplicaProgress& progress, const std::vector<torch::Tensor>& gradients) const {
  const torch::NoGradGuard no_grad;
  progress.sums.resize(gradients.size());
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    torch::Tensor& sum = progress.sums[p];
    if (!gradients[p].defined()) continue;
    sum = sum.defined() ? sum.add_(gradients[p]) : gradients[p].detach().clone();
  }
}

// Returns the sums, which begin anew.
std::vector<torch::Tensor> Step::take_sums(ReplicaProgress& progress) const {
  if (!state_->keeps_sums()) return std::exchange(progress.sums, {});
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> taken;
  for (torch::Tensor& sum : progress.sums) {
    taken.push_back(sum.clone());
    sum.zero_();
  }
  return taken;
}

torch::Tensor Step::scaled(const Replica& replica, const torch::Tensor& loss) {
  require_none_before(replica);
  const StepEngine* const own = engine();
  if (rule_.gradient().loss_scale && own != nullptr) {
    return loss * own->loss_scale(*this, replica, loss, fixed_scale());
  }
  const double scale = state_->of(replica.local_id()).scaler.scale() * fixed_scale();
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

void Step::require_none_before(const Replica& replica) const {
  if (!rule_.gradient().loss_scale && fixed_scale() == 1.0) return;
  for (const torch::Tensor& parameter : flat_->tensors(replica.local_id())) {
    if (!parameter.grad().defined()) continue;
    fail<FailedPrecondition>("[optimizer] minimize: a parameter of shape ", parameter.sizes(), " has a gradient of ",
                             "another backward(), whose loss was not scaled, and ", rule_.name(),
                             " has a loss_scale; make it a part of the loss");
  }
}

void Step::require_gradients(const std::vector<torch::Tensor>& gradients) const {
  if (gradients.size() != names_.size()) {
    fail<InvalidArgument>("[optimizer] apply_gradients: got ", gradients.size(),
                          " gradients, wanted one for each of the ", names_.size(), " parameters");
  }
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    const FlatParameter& parameter = flat_->parameters()[p];
    if (!gradients[p].defined() || gradients[p].sizes() == c10::IntArrayRef(parameter.shape)) continue;
    fail<InvalidArgument>("[optimizer] apply_gradients: the gradient of ", parameter.name, " has shape ",
                          gradients[p].sizes(), ", the parameter ", c10::IntArrayRef(parameter.shape));
  }
}

}  // namespace cohort
