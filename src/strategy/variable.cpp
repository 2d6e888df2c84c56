#include "cohort/variable.h"

#include "base/access.h"
#include "base/fail.h"
#include "cohort/strategy.h"
#include "strategy/core.h"
#include "strategy/remote_variables.h"

namespace cohort {

struct Variable::State {
  std::shared_ptr<StrategyCore> core;
  VariableOptions options;
  PerReplica<torch::Tensor> components;
  std::optional<std::size_t> remote;  // kept by other processes, under this number

  bool on_read() const { return options.synchronization == VariableSynchronization::kOnRead; }
  bool sums() const { return options.aggregation == VariableAggregation::kSum; }

  // This thread's replica of the variable's strategy; null across replicas.
  Replica* replica() const {
    Replica* current = Replica::current();
    if (current != nullptr && &Access::core(*current) != core.get()) {
      fail<FailedPrecondition>("[variable] ", options.name, " belongs to ", core->plan().name,
                               " and is used inside a replica of ", "another strategy");
    }
    return current;
  }

  // Applies fn once to each storage.
  template <typename Fn>
  void each_component(const Fn& fn) const {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < components.size(); ++i) {
      if (i > 0 && components[i].data_ptr() == components[0].data_ptr()) continue;
      torch::Tensor component = components[i].detach();
      fn(component);
    }
  }

  // The replicas' values become one, the same on all.
  torch::Tensor aggregate(Replica& replica, const torch::Tensor& value) const {
    torch::Tensor result = value.detach().to(components[replica].options(), /*non_blocking=*/false, /*copy=*/true);
    if (options.aggregation == VariableAggregation::kOnlyFirstReplica) {
      replica.communicator().broadcast({&result, 1}, 0);
    } else {
      replica.communicator().all_reduce({&result, 1}, sums() ? ReduceOp::kSum : ReduceOp::kMean);
    }
    return result;
  }

  // An on-write assignment from the replicas: aggregated, then every storage is written by one replica.
  template <typename Fn>
  void write_from(Replica& replica, const torch::Tensor& value, std::string_view method, const Fn& fn) const {
    require_aggregation(method);
    const torch::NoGradGuard no_grad;
    const torch::Tensor result = aggregate(replica, value);
    const bool shared = replica.local_id() > 0 && components[replica].data_ptr() == components[0].data_ptr();
    if (!shared) {
      torch::Tensor component = components[replica].detach();
      fn(component, result);
    }
    replica.barrier();  // nobody reads before all have written
  }

  // The components become what the other processes say.
  void spread() const {
    const torch::Tensor& value = core->remote()->local(*remote).value;
    each_component([&](torch::Tensor& component) { component.copy_(value.view(component.sizes())); });
  }

  // Of a variable that other processes keep: by one replica for all.
  template <typename Fn>
  void write_remote(Replica* inside, const torch::Tensor& value, std::string_view method, const Fn& fn) const {
    const torch::TensorOptions like = core->remote()->local(*remote).value.options();
    const auto send = [&](const torch::Tensor& one) {
      const torch::NoGradGuard no_grad;
      fn(one.detach().to(like).expand(components[0].sizes()).contiguous());
      spread();
    };
    if (inside == nullptr) return send(value);
    require_aggregation(method);
    const torch::Tensor result = [&] {
      const torch::NoGradGuard no_grad;
      return aggregate(*inside, value);
    }();
    core->meet(inside->local_id(), method, nullptr, [&](std::span<void* const>) { send(result); });
  }

  void require_aggregation(std::string_view method) const {
    if (options.aggregation != VariableAggregation::kNone || core->num_replicas_in_sync() == 1) return;
    fail<InvalidArgument>("[variable] ", options.name, ": ", method, " from the replicas of ", core->plan().name,
                          " needs an aggregation (sum, mean or only_first_replica) that says how their values become ",
                          "one; give it in VariableOptions, or assign outside run()");
  }

  template <typename Fn>
  void write(const torch::Tensor& value, std::string_view method, const Fn& fn) const {
    Replica* inside = replica();
    if (inside != nullptr && !on_read()) {
      write_from(*inside, value, method, fn);
    } else if (inside != nullptr) {
      const torch::NoGradGuard no_grad;
      torch::Tensor component = components[*inside].detach();
      fn(component, value.detach().to(component.options()));
    } else {
      each_component([&](torch::Tensor& component) { fn(component, value.detach().to(component.options())); });
    }
  }
};

Variable Strategy::variable(const torch::Tensor& initial, const VariableOptions& options) const {
  require_cross_replica("variable");
  auto state = std::make_shared<Variable::State>();
  state->core = core_;
  state->options = options;
  if (options.synchronization == VariableSynchronization::kNone) {
    fail<InvalidArgument>("[variable] ", options.name,
                          ": synchronization none is not supported; use auto, on_write or on_read");
  }
  if (options.synchronization == VariableSynchronization::kAuto) {
    state->options.synchronization = VariableSynchronization::kOnWrite;
  }
  if (state->on_read() && options.trainable.value_or(false)) {
    fail<InvalidArgument>("[variable] ", options.name, ": a variable that is synchronised on read cannot be trainable");
  }
  torch::Tensor value = initial.detach().clone();
  core_->broadcast_from_chief({&value, 1});
  const bool trainable = options.trainable.value_or(!state->on_read() && initial.is_floating_point());
  std::vector<torch::Tensor> components;
  for (int i = 0; i < num_local_replicas(); ++i) {
    const bool share = i > 0 && core_->one_copy() && !state->on_read();
    torch::Tensor component =
        share ? components.front().detach() : value.to(core_->parameter_device(i), false, /*copy=*/true);
    components.push_back(component.set_requires_grad(trainable));
  }
  state->components = PerReplica<torch::Tensor>(std::move(components));
  if (core_->remote() != nullptr && !state->on_read()) {
    state->remote = core_->remote()->declare({.name = options.name, .value = value.cpu().contiguous()});
    core_->remote()->on_refresh([weak = std::weak_ptr(state)] {
      if (const auto alive = weak.lock()) alive->spread();
    });
  }
  return Variable(std::move(state));
}

bool Strategy::owns(const Variable& variable) const {
  return variable.state_ && variable.state_->core == core_;
}

torch::Tensor Variable::read() const {
  if (const Replica* replica = state_->replica()) return state_->components[*replica];
  if (state_->remote) {
    state_->core->remote()->read(*state_->remote);
    state_->spread();
  }
  if (!state_->on_read() || state_->options.aggregation == VariableAggregation::kOnlyFirstReplica) {
    torch::Tensor first = state_->components[0].detach().clone();
    if (state_->on_read()) state_->core->broadcast_from_chief({&first, 1});
    return first;
  }
  if (state_->options.aggregation == VariableAggregation::kNone) {
    fail<FailedPrecondition>("[variable] ", name(), ": is synchronised on read but has no aggregation, so it has no ",
                             "value outside the replicas; read its components()");
  }
  return Access::make<Strategy>(state_->core)
      .reduce(state_->sums() ? ReduceOp::kSum : ReduceOp::kMean,
              state_->components.map([](const torch::Tensor& t) { return t.detach().clone(); }));
}

void Variable::assign(const torch::Tensor& value) const {
  const bool spread = state_->on_read() && state_->sums() && state_->replica() == nullptr;
  if (state_->remote) {
    return state_->write_remote(state_->replica(), value, "assign",
                                [&](const torch::Tensor& v) { state_->core->remote()->assign(*state_->remote, v); });
  }
  const torch::Tensor share = spread ? value / state_->core->num_replicas_in_sync() : value;
  state_->write(share, "assign", [](torch::Tensor& component, const torch::Tensor& v) { component.copy_(v); });
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

void Variable::assign_add(const torch::Tensor& delta) const {
  refuse_sum_on_read(*this, "assign_add");
  if (state_->remote) {
    return state_->write_remote(state_->replica(), delta, "assign_add",
                                [&](const torch::Tensor& v) { state_->core->remote()->add(*state_->remote, v); });
  }
  state_->write(delta, "assign_add", [](torch::Tensor& component, const torch::Tensor& v) { component.add_(v); });
}

void Variable::assign_sub(const torch::Tensor& delta) const {
  refuse_sum_on_read(*this, "assign_sub");
  if (state_->remote) return assign_add(-delta);
  state_->write(delta, "assign_sub", [](torch::Tensor& component, const torch::Tensor& v) { component.sub_(v); });
}

void Variable::update(const std::function<void(torch::Tensor& component)>& fn) const {
  if (state_->replica() != nullptr) {
    fail<FailedPrecondition>("[variable] ", name(), ": update is called across replicas, not inside run()");
  }
  state_->each_component(fn);
}

const std::string& Variable::name() const {
  return state_->options.name;
}
const VariableOptions& Variable::options() const {
  return state_->options;
}
const PerReplica<torch::Tensor>& Variable::components() const {
  return state_->components;
}

}  // namespace cohort
