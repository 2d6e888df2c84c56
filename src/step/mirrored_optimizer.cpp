// The handles of cohort/optimizer.h: each call goes to the step or its state.
#include <set>
#include "base/access.h"

#include "base/fail.h"
#include "cohort/optimizer.h"
#include "cohort/strategy.h"
#include "cohort/train/script_module.h"
#include "step/step.h"
#include "strategy/combinations.h"
#include "strategy/core.h"

namespace cohort {

namespace {

// A replica's components of variables in the place of a module's parameters, under the variables' names.
class VariablesModule final : public torch::nn::Module, public KeptWhole {
 public:
  // register_parameter() would refuse a name with a dot.
  void add(const std::string& name, const torch::Tensor& component) { parameters_.insert(name, component); }
};

void require_trainable(const Strategy& strategy, const Variable& variable, const std::string& who) {
  if (!strategy.owns(variable)) {
    fail<InvalidArgument>(who, ": a variable is empty, or made under another strategy than ", strategy.name());
  }
  if (variable.name().empty()) fail<InvalidArgument>(who, ": a variable has an empty name, by which slots are saved");
  if (variable.options().synchronization == VariableSynchronization::kOnRead) {
    fail<InvalidArgument>(who, ": the variable \"", variable.name(),
                          "\" is synchronised on read: its replicas have values of their own, so it cannot learn");
  }
  if (!variable.components()[0].requires_grad()) {
    fail<InvalidArgument>(who, ": the variable \"", variable.name(), "\" is not trainable");
  }
}

// Its compiler may make kernels that take parameters without asking for their memory.
void require_no_script(const torch::nn::Module& module, const Optimizer& rule) {
  const auto refuse = [&](const std::string& name, const torch::nn::Module& each) {
    if (dynamic_cast<const ScriptModule*>(&each) == nullptr) return;
    require_pair(
        c10::str("[optimizer] ", rule.name(), ":"),
        {.feature = kScriptModules, .said = c10::str(name.empty() ? "the module" : name, " is a module from Python's")},
        {.feature = kSharedParameters, .said = "sharding.stage is 3"});
  };
  module.apply(refuse);
}

}  // namespace

void ReplicaOptimizer::minimize(const torch::Tensor& loss) {
  step_.minimize(replica_, loss);
}
void ReplicaOptimizer::apply_gradients(std::vector<torch::Tensor> gradients, bool reduced) {
  step_.apply_gradients(replica_, std::move(gradients), reduced);
}
std::vector<torch::Tensor> ReplicaOptimizer::gradients(const torch::Tensor& loss) {
  return step_.gradients(replica_, loss);
}

int64_t MirroredOptimizer::iterations() const {
  return step_->state().iterations();
}
int64_t MirroredOptimizer::iterations_begun() const {
  return step_->state().iterations_begun();
}
double MirroredOptimizer::loss_scale() const {
  return step_->state().of(0).scaler.scale();
}
double MirroredOptimizer::learning_rate() const {
  return step_->state().learning_rate();
}
void MirroredOptimizer::set_learning_rate(Schedule schedule) const {
  step_->state().set_learning_rate(std::move(schedule));
}
const Optimizer& MirroredOptimizer::rule() const {
  return step_->rule();
}
ExchangeTimeline MirroredOptimizer::exchange_timeline() const {
  return step_->exchange_timeline();
}
StateBytes MirroredOptimizer::state_bytes() const {
  return step_->state_bytes();
}
const std::vector<std::string>& MirroredOptimizer::parameter_names() const {
  return step_->parameter_names();
}
std::vector<std::pair<std::string, torch::Tensor>> MirroredOptimizer::state() const {
  return step_->state().save();
}
void MirroredOptimizer::load_state(const std::vector<std::pair<std::string, torch::Tensor>>& state) const {
  step_->state().load(state);
}
void MirroredOptimizer::finalize_variable_values() const {
  step_->state().put_averages();
}
std::vector<torch::Tensor> MirroredOptimizer::accumulated() const {
  return step_->state().save_accumulated();
}
void MirroredOptimizer::load_accumulated(const std::vector<torch::Tensor>& sums) const {
  step_->state().load_accumulated(sums);
}

namespace {

std::shared_ptr<Step> make_step(StrategyCore& core, MirroredModule module, const Optimizer& rule) {
  auto step = std::make_shared<Step>(std::move(module), rule);
  core.memory_holders().add(std::weak_ptr<const HoldsMemory>(step));
  return step;
}

}  // namespace

MirroredOptimizer Strategy::optimizer(const MirroredModule& module, const Optimizer& rule) const {
  require_cross_replica("optimizer");
  if (Access::core(module) != core_) {
    fail<InvalidArgument>("[optimizer] ", rule.name(), ": the module was mirrored by another strategy");
  }
  if (core_->shares_parameters()) require_no_script(*module.copies().front(), rule);
  return MirroredOptimizer(make_step(*core_, module, rule));
}

MirroredOptimizer Strategy::optimizer(const std::vector<Variable>& variables, const Optimizer& rule) const {
  require_cross_replica("optimizer");
  const std::string who = "[optimizer] " + std::string(rule.name());
  core_->placement().require_here(
      who + ": parameter servers keep each variable by itself and change it by assignments alone; for an optimizer " +
      "there, register the tensors as parameters of a module");
  if (variables.empty()) fail<InvalidArgument>(who, ": there are no variables");
  std::vector<std::shared_ptr<torch::nn::Module>> copies;
  for (int replica = 0; replica < num_local_replicas(); ++replica) {
    const auto copy = std::make_shared<VariablesModule>();
    std::set<std::string_view> names;
    for (const Variable& variable : variables) {
      require_trainable(*this, variable, who);
      if (!names.insert(variable.name()).second) {
        fail<InvalidArgument>(who, ": two variables have the name \"", variable.name(),
                              "\"; VariableOptions::name gives each its own");
      }
      copy->add(variable.name(), variable.components()[static_cast<std::size_t>(replica)]);
    }
    copies.push_back(copy);
  }
  return MirroredOptimizer(make_step(*core_, Access::make<MirroredModule>(core_, std::move(copies)), rule));
}

}  // namespace cohort
