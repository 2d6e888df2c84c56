#include "cohort/variable.h"

#include "base/access.h"
#include "base/fail.h"
#include "cohort/strategy.h"
#include "strategy/core.h"

namespace cohort {

struct Variable::State {
  std::shared_ptr<VariableComponents> components;
  std::unique_ptr<VariableHome> home;

  const VariableOptions& options() const { return components->options; }

  // Returns this thread's replica of the variable's strategy; null across replicas.
  Replica* replica() const {
    Replica* current = Replica::current();
    if (current != nullptr && &Access::core(*current) != components->core.get()) {
      fail<FailedPrecondition>("[variable] ", options().name, " belongs to ", components->core->plan().name,
                               " and is used inside a replica of another strategy");
    }
    return current;
  }
};

Variable Strategy::variable(const torch::Tensor& initial, const VariableOptions& options) const {
  require_cross_replica("variable");
  auto made = std::make_shared<VariableComponents>();
  made->core = core_;
  made->options = options;
  if (options.synchronization == VariableSynchronization::kNone) {
    fail<InvalidArgument>("[variable] ", options.name,
                          ": synchronization none is not supported; use auto, on_write or on_read");
  }
  if (options.synchronization == VariableSynchronization::kAuto) {
    made->options.synchronization = VariableSynchronization::kOnWrite;
  }
  torch::Tensor value = initial.detach().clone();
  core_->broadcast_from_chief({&value, 1});
  const bool trainable = options.trainable.value_or(!made->on_read() && initial.is_floating_point());
  std::vector<torch::Tensor> components;
  for (int i = 0; i < num_local_replicas(); ++i) {
    // A variable that each replica writes alone has its own component everywhere.
    const int holder = made->on_read() ? i : core_->placement().holder(i);
    torch::Tensor component = holder == i ? value.to(core_->parameter_device(i), false, /*copy=*/true)
                                          : components[static_cast<std::size_t>(holder)].detach();
    components.push_back(component.set_requires_grad(trainable));
  }
  made->values = PerReplica<torch::Tensor>(std::move(components));
  auto state = std::make_shared<Variable::State>();
  state->components = made;
  state->home = core_->placement().home(std::move(made), value);
  std::erase_if(core_->variables(), [](const auto& each) { return each.expired(); });
  core_->variables().push_back(state);
  return Variable(std::move(state));
}

std::vector<Variable> Strategy::variables() const {
  std::vector<Variable> list;
  for (const std::weak_ptr<void>& each : core_->variables()) {
    if (auto state = std::static_pointer_cast<Variable::State>(each.lock())) list.push_back(Variable(std::move(state)));
  }
  return list;
}

bool Strategy::owns(const Variable& variable) const {
  return variable.state_ && variable.state_->components->core == core_;
}

torch::Tensor Variable::read() const {
  const VariableComponents& components = *state_->components;
  if (const Replica* replica = state_->replica()) return components.values[*replica];
  state_->home->refresh();
  const VariableOptions& options = components.options;
  if (!components.on_read() || options.aggregation == VariableAggregation::kOnlyFirstReplica) {
    torch::Tensor first = components.values[0].detach().clone();
    if (components.on_read()) components.core->broadcast_from_chief({&first, 1});
    return first;
  }
  if (options.aggregation == VariableAggregation::kNone) {
    fail<FailedPrecondition>("[variable] ", name(), ": is synchronised on read but has no aggregation, so it has no ",
                             "value outside the replicas; read its components()");
  }
  return Access::make<Strategy>(components.core)
      .reduce(components.sums() ? ReduceOp::kSum : ReduceOp::kMean,
              components.values.map([](const torch::Tensor& t) { return t.detach().clone(); }));
}

namespace {

void refuse_sum_on_read(const Variable& variable, std::string_view method) {
  const VariableOptions& options = variable.options();
  if (options.synchronization != VariableSynchronization::kOnRead || options.aggregation != VariableAggregation::kSum)
    return;
  if (Replica::current() != nullptr) return;
  fail<InvalidArgument>("[variable] ", variable.name(), ": ", method,
                        " across replicas of a variable that is summed on read has ",
                        "no meaning; call it inside run(), or assign()");
}

}  // namespace

void Variable::assign(const torch::Tensor& value) const {
  const VariableComponents& components = *state_->components;
  Replica* inside = state_->replica();
  const bool spread = components.on_read() && components.sums() && inside == nullptr;
  const torch::Tensor share = spread ? value / components.core->num_replicas_in_sync() : value;
  state_->home->write(inside, share, VariableChange::kAssign, "assign");
}

void Variable::assign_add(const torch::Tensor& delta) const {
  refuse_sum_on_read(*this, "assign_add");
  state_->home->write(state_->replica(), delta, VariableChange::kAdd, "assign_add");
}

void Variable::assign_sub(const torch::Tensor& delta) const {
  refuse_sum_on_read(*this, "assign_sub");
  state_->home->write(state_->replica(), delta, VariableChange::kSubtract, "assign_sub");
}

void Variable::update(const std::function<void(torch::Tensor& component)>& fn) const {
  if (state_->replica() != nullptr) {
    fail<FailedPrecondition>("[variable] ", name(), ": update is called across replicas, not inside run()");
  }
  state_->components->each(fn);
}

const std::string& Variable::name() const {
  return state_->options().name;
}
const VariableOptions& Variable::options() const {
  return state_->options();
}
const PerReplica<torch::Tensor>& Variable::components() const {
  return state_->components->values;
}

}  // namespace cohort
