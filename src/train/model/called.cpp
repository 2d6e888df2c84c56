// A model that is called, in loops of the user's own. Keras' models have no mode: each call says whether it trains. So
// a call sets the mode of the copy that it takes, and leaves it as it was.
#include <optional>

#include "base/access.h"
#include "base/fail.h"
#include "strategy/core.h"
#include "strategy/holders.h"
#include "strategy/module_tensors.h"
#include "train/losses/support.h"
#include "train/model/kept_modes.h"
#include "train/model/model_state.h"

namespace cohort {

const char* why_in_parts(const StrategyCore& core) {
  if (core.divides_models()) return "the replicas of a line compute together";
  if (core.shares_parameters()) return "the replicas share the parameters (sharding.stage 3)";
  if (has_stages(core)) return "the workers have the layers of a few stages each";
  return nullptr;
}

namespace {

// Outside of run() the layers of one copy compute alone, with all parameters.
void require_whole_copy(const std::string& speaker, const StrategyCore& core) {
  const char* const why = why_in_parts(core);
  if (why == nullptr) return;
  fail<FailedPrecondition>(speaker, "called outside run(), but no replica has the whole model: ", why,
                           "; call it in run(), or predict()");
}

}  // namespace

const Replica& ModelState::called_replica() const {
  const Replica* const replica = Replica::current();
  const StrategyCore& core = *Access::core(strategy_);
  if (replica == nullptr) return core.replica(0);
  if (Access::core(replica->strategy()).get() == &core) return *replica;
  fail<FailedPrecondition>(speaker(), "called in a replica of ", replica->strategy().name(),
                           ", but the model was made under another strategy, ", strategy_.name());
}

torch::nn::Module& ModelState::called_copy() const {
  require_built("called");
  return *module_.copies()[static_cast<std::size_t>(called_replica().local_id())];
}

NamedTensors ModelState::call(const Example& share, bool training) {
  if (!built()) {
    const auto make = [&](const Strategy& /*strategy*/) { build_from(share); };
    Replica* const replica = Replica::current();
    replica == nullptr ? make(strategy_) : replica->merge_call(make);
  }
  const Replica& replica = called_replica();
  torch::nn::Module& copy = called_copy();
  Example own = share;
  if (Replica::current() == nullptr) {
    require_whole_copy(speaker(), *Access::core(strategy_));
    finish_steps();
    own = share.to(replica.device());
  }
  std::optional<KeptModes> modes;
  if (copy.is_training() != training) {
    modes.emplace(copy);
    copy.train(training);
  }
  if (training) hold_frozen(static_cast<std::size_t>(replica.local_id()));
  LossTerms terms;
  NamedTensors outputs = named_outputs(replica, own);
  called_terms_[static_cast<std::size_t>(replica.local_id())] = std::move(terms.list);
  return outputs;
}

std::vector<torch::Tensor> ModelState::losses() const {
  require_built("losses");
  const Replica& replica = called_replica();
  return costs(replica, called_terms_[static_cast<std::size_t>(replica.local_id())]);
}

void ModelState::set_trainable(std::size_t index, bool trainable) {
  entries_[index].trainable = trainable;
  if (built() && !compiled()) apply_trainable();
}

torch::Tensor Model::operator()(const torch::Tensor& x, const CallOptions& options) const {
  const NamedTensors outputs = state_->call({.x = x}, options.training);
  if (outputs.size() == 1) return outputs.front().second;
  fail<InvalidArgument>("[model] ", name(), ": called with a tensor, but the module has the outputs ",
                        quoted_names(outputs), ": call it with NamedTensors, which returns all of them");
}

NamedTensors Model::operator()(const NamedTensors& inputs, const CallOptions& options) const {
  return state_->call({.inputs = inputs}, options.training);
}

std::vector<torch::Tensor> Model::trainable_variables() const {
  std::vector<torch::Tensor> list;
  for (const ModuleTensor& parameter : distinct_parameters(state_->called_copy())) {
    if (parameter.tensor.requires_grad()) list.push_back(parameter.tensor);
  }
  return list;
}

std::vector<torch::Tensor> Model::losses() const {
  return state_->losses();
}

}  // namespace cohort
