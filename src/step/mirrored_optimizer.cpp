// The handles of cohort/optimizer.h: each call goes to the step or its state.
#include "base/access.h"
#include "base/fail.h"
#include "cohort/optimizer.h"
#include "cohort/strategy.h"
#include "step/step.h"

namespace cohort {

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
const std::vector<std::string>& MirroredOptimizer::parameter_names() const {
  return step_->parameter_names();
}
std::vector<std::pair<std::string, torch::Tensor>> MirroredOptimizer::state() const {
  return step_->state().save();
}
void MirroredOptimizer::load_state(const std::vector<std::pair<std::string, torch::Tensor>>& state) const {
  step_->state().load(state);
}
std::vector<torch::Tensor> MirroredOptimizer::accumulated() const {
  return step_->state().save_accumulated();
}
void MirroredOptimizer::load_accumulated(const std::vector<torch::Tensor>& sums) const {
  step_->state().load_accumulated(sums);
}

MirroredOptimizer Strategy::optimizer(const MirroredModule& module, const Optimizer& rule) const {
  require_cross_replica("optimizer");
  if (Access::core(module) != core_) {
    fail<InvalidArgument>("[optimizer] ", rule.name(), ": the module was mirrored by another strategy");
  }
  return MirroredOptimizer(std::make_shared<Step>(module, rule));
}

}  // namespace cohort
