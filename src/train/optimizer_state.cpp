#include "train/optimizer_state.h"

#include <algorithm>
#include <map>

#include "base/fail.h"
#include "cohort/strategy.h"
#include "cohort/trace.h"

namespace cohort {

namespace {

constexpr const char* kLossScale = "loss_scale";
constexpr const char* kGoodSteps = "good_steps";

}  // namespace

OptimizerState::OptimizerState(MirroredModule module, Optimizer rule)
    : module_(std::move(module)),
      rule_(std::move(rule)),
      schedule_(rule_.learning_rate()),
      flat_(module_, rule_),
      engine_(make_update_engine(module_, flat_, rule_)),
      counts_(module_.copies().size()) {
  for (const FlatParameter& parameter : flat_.parameters()) names_.push_back(parameter.name);
  const auto& scale = rule_.gradient().loss_scale;
  for (Counts& counts : counts_) counts.loss_scale = scale ? scale->initial_scale : 1.0;
}

void OptimizerState::require_own(const Replica& replica) const {
  if (&replica.core() == module_.core().get()) return;
  fail<FailedPrecondition>("[optimizer] ", rule_.name(),
                           ": made under another strategy than the replica it is used in");
}

void OptimizerState::require_loss(const Replica& replica, const torch::Tensor& loss) const {
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

std::vector<torch::Tensor> OptimizerState::gradients(Replica& replica, const torch::Tensor& loss) {
  require_loss(replica, loss);
  const double scale = counts_[static_cast<std::size_t>(replica.local_id())].loss_scale;
  (scale == 1.0 ? loss : loss * scale).backward();
  std::vector<torch::Tensor> taken = flat_.take_gradients(replica.local_id());
  for (torch::Tensor& gradient : taken) {
    if (scale != 1.0 && gradient.defined()) gradient = gradient / scale;
  }
  return taken;
}

void OptimizerState::minimize(Replica& replica, const torch::Tensor& loss) {
  if (rule_.gradient().accumulate_steps > 1) return apply(replica, gradients(replica, loss), /*reduced=*/false);
  require_loss(replica, loss);
  const double scale = counts_[static_cast<std::size_t>(replica.local_id())].loss_scale;
  {
    const TraceSpan span("compute", "backward");
    engine_->backward(replica, scale == 1.0 ? loss : loss * scale);
  }
  apply(replica, flat_.take_gradients(replica.local_id()), /*reduced=*/false, scale);
}

void OptimizerState::apply(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced, double scale) {
  require_own(replica);
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
  Counts& counts = counts_[static_cast<std::size_t>(replica.local_id())];
  const int64_t every = rule_.gradient().accumulate_steps;
  if (every > 1) {
    const torch::NoGradGuard no_grad;
    counts.accumulator.resize(names_.size());
    for (std::size_t p = 0; p < gradients.size(); ++p) {
      torch::Tensor& sum = counts.accumulator[p];
      if (!gradients[p].defined()) continue;
      sum = sum.defined() ? sum.add_(gradients[p]) : gradients[p].detach().clone();
    }
    if (++counts.accumulated < every) return;
    counts.accumulated = 0;
    gradients = std::exchange(counts.accumulator, {});
  }
  StepContext context{.learning_rate = schedule_(counts.iterations),
                      .step = counts.iterations + 1,
                      .clipvalue = rule_.gradient().clipvalue};
  note_step(counts, engine_->step(replica, gradients, reduced, context, 1.0 / (scale * static_cast<double>(every))));
}

// Every replica of every worker does the same here.
void OptimizerState::note_step(Counts& counts, bool updated) const {
  if (updated) ++counts.iterations;
  const auto& options = rule_.gradient().loss_scale;
  if (!options || !options->dynamic) return;
  if (!updated) {
    counts.loss_scale = std::max(1.0, counts.loss_scale / 2.0);
    counts.good_steps = 0;
  } else if (++counts.good_steps >= options->growth_steps) {
    counts.loss_scale *= 2.0;
    counts.good_steps = 0;
  }
}

torch::Tensor OptimizerState::slot_of(std::size_t parameter, std::size_t slot) const {
  return flat_.part_of(engine_->slots()[flat_.parameters()[parameter].group][slot], parameter);
}

std::vector<std::pair<std::string, torch::Tensor>> OptimizerState::state() const {
  std::vector<std::pair<std::string, torch::Tensor>> list;
  list.emplace_back("iterations", torch::tensor(iterations(), torch::kLong));
  if (rule_.gradient().loss_scale) {
    list.emplace_back(kLossScale, torch::tensor(counts_.front().loss_scale, torch::kDouble));
    list.emplace_back(kGoodSteps, torch::tensor(counts_.front().good_steps, torch::kLong));
  }
  if (rate_is_set_) list.emplace_back(kLearningRateEntry, torch::tensor(schedule_(0), torch::kDouble));
  for (std::size_t p = 0; p < names_.size(); ++p) {
    for (std::size_t s = 0; s < rule_.rule().slots().size(); ++s) {
      list.emplace_back(names_[p] + "/" + rule_.rule().slots()[s], slot_of(p, s).clone());
    }
  }
  return list;
}

void OptimizerState::load_state(const std::vector<std::pair<std::string, torch::Tensor>>& state) {
  const torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> given(state.begin(), state.end());
  const auto take = [&](const std::string& name) {
    const auto item = given.find(name);
    if (item == given.end())
      fail<NotFound>("[optimizer] load_state: there is no \"", name, "\" among the ", given.size(), " tensors");
    return item->second;
  };
  for (std::size_t p = 0; p < names_.size(); ++p) {
    for (std::size_t s = 0; s < rule_.rule().slots().size(); ++s) {
      const std::string name = names_[p] + "/" + rule_.rule().slots()[s];
      const torch::Tensor value = take(name);
      torch::Tensor slot = slot_of(p, s);
      if (value.sizes() != slot.sizes()) {
        fail<InvalidArgument>("[optimizer] load_state: \"", name, "\" has shape ", value.sizes(), ", wanted ",
                              slot.sizes());
      }
      slot.copy_(value);
    }
  }
  const auto iterations = take("iterations").item<int64_t>();
  engine_->spread_slots(iterations);
  const auto rate = given.find(kLearningRateEntry);
  load_rate(rate == given.end() ? std::nullopt : std::optional(rate->second.item<double>()));
  // A training without loss scaling may be gone on with.
  const auto& scale = rule_.gradient().loss_scale;
  const bool saved = scale && given.contains(kLossScale) && given.contains(kGoodSteps);
  for (Counts& counts : counts_) {
    counts = {.iterations = iterations, .loss_scale = scale ? scale->initial_scale : 1.0};
    if (saved && scale->dynamic) counts.loss_scale = given[kLossScale].item<double>();
    if (saved) counts.good_steps = given[kGoodSteps].item<int64_t>();
  }
}

// Makes the rate what it was. A schedule that the program has set is the program's own and stays.
void OptimizerState::load_rate(std::optional<double> saved) {
  if (saved) return set_learning_rate(*saved);
  if (!rate_is_set_) return;
  set_learning_rate(rule_.learning_rate());
  rate_is_set_ = false;
}

// Of each replica: how many calls were added up, then a sum for each parameter, empty where none came.
std::vector<torch::Tensor> OptimizerState::accumulated() const {
  std::vector<torch::Tensor> list;
  if (rule_.gradient().accumulate_steps == 1) return list;
  for (const Counts& counts : counts_) {
    list.push_back(torch::tensor(counts.accumulated, torch::kLong));
    for (std::size_t p = 0; p < names_.size(); ++p) {
      const bool came = p < counts.accumulator.size() && counts.accumulator[p].defined();
      list.push_back(
          came ? flat_.laid_out(counts.accumulator[p], p).to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true)
               : torch::empty({0}));
    }
  }
  return list;
}

void OptimizerState::load_accumulated(const std::vector<torch::Tensor>& sums) {
  const bool accumulates = rule_.gradient().accumulate_steps > 1;
  const std::size_t wanted = accumulates ? counts_.size() * (1 + names_.size()) : 0;
  if (sums.size() != wanted) {
    fail<InvalidArgument>("[optimizer] load_accumulated: got ", sums.size(), " tensors, wanted ", wanted);
  }
  auto next = sums.begin();
  for (std::size_t replica = 0; accumulates && replica < counts_.size(); ++replica) {
    Counts& counts = counts_[replica];
    counts.accumulated = (next++)->item<int64_t>();
    counts.accumulator.assign(names_.size(), {});
    for (std::size_t p = 0; p < names_.size(); ++p, ++next) {
      const FlatParameter& parameter = flat_.parameters()[p];
      if (next->sizes() == c10::IntArrayRef(parameter.shape)) {
        counts.accumulator[p] = next->to(flat_.tensors(static_cast<int>(replica))[p].options(), false, /*copy=*/true);
      } else if (next->numel() > 0) {
        fail<InvalidArgument>("[optimizer] load_accumulated: the sum for ", parameter.name, " has shape ",
                              next->sizes(), ", wanted ", c10::IntArrayRef(parameter.shape));
      }
    }
  }
}

double ExchangeTimeline::hidden() const {
  double total = 0.0;
  double under_backward = 0.0;
  for (const Message& message : messages) {
    total += message.end - message.begin;
    under_backward += std::max(0.0, std::min(message.end, backward) - message.begin);
  }
  return total > 0.0 ? under_backward / total : 0.0;
}

// The handles of optimizer.h.

void ReplicaOptimizer::minimize(const torch::Tensor& loss) {
  state_.minimize(replica_, loss);
}
void ReplicaOptimizer::apply_gradients(std::vector<torch::Tensor> gradients, bool reduced) {
  state_.apply(replica_, std::move(gradients), reduced);
}
std::vector<torch::Tensor> ReplicaOptimizer::gradients(const torch::Tensor& loss) {
  return state_.gradients(replica_, loss);
}

int64_t MirroredOptimizer::iterations() const {
  return state_->iterations();
}
double MirroredOptimizer::loss_scale() const {
  return state_->loss_scale();
}
double MirroredOptimizer::learning_rate() const {
  return state_->learning_rate();
}
void MirroredOptimizer::set_learning_rate(Schedule schedule) const {
  state_->set_learning_rate(std::move(schedule));
}
const Optimizer& MirroredOptimizer::rule() const {
  return state_->rule();
}
ExchangeTimeline MirroredOptimizer::exchange_timeline() const {
  return state_->exchange_timeline();
}
const std::vector<std::string>& MirroredOptimizer::parameter_names() const {
  return state_->parameter_names();
}
std::vector<std::pair<std::string, torch::Tensor>> MirroredOptimizer::state() const {
  return state_->state();
}
void MirroredOptimizer::load_state(const std::vector<std::pair<std::string, torch::Tensor>>& state) const {
  state_->load_state(state);
}
std::vector<torch::Tensor> MirroredOptimizer::accumulated() const {
  return state_->accumulated();
}
void MirroredOptimizer::load_accumulated(const std::vector<torch::Tensor>& sums) const {
  state_->load_accumulated(sums);
}

MirroredOptimizer Strategy::optimizer(const MirroredModule& module, const Optimizer& rule) const {
  require_cross_replica("optimizer");
  if (module.core() != core_) {
    fail<InvalidArgument>("[optimizer] ", rule.name(), ": the module was mirrored by another strategy");
  }
  return MirroredOptimizer(std::make_shared<OptimizerState>(module, rule));
}

}  // namespace cohort
