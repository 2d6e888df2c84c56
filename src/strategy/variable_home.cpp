#include "strategy/variable_home.h"

#include "base/fail.h"
#include "strategy/core.h"
#include "strategy/remote_variables.h"

namespace cohort {

namespace {

void apply(VariableChange change, torch::Tensor& component, const torch::Tensor& value) {
  switch (change) {
    case VariableChange::kAssign:
      component.copy_(value);
      return;
    case VariableChange::kAdd:
      component.add_(value);
      return;
    case VariableChange::kSubtract:
      component.sub_(value);
      return;
  }
}

class HomeHere final : public VariableHome {
 public:
  explicit HomeHere(std::shared_ptr<VariableComponents> components) : components_(std::move(components)) {}

  void refresh() override {}

  void write(Replica* inside, const torch::Tensor& value, VariableChange change, std::string_view method) override {
    const torch::NoGradGuard no_grad;
    if (inside == nullptr) {
      components_->each([&](torch::Tensor& each) { apply(change, each, value.detach().to(each.options())); });
    } else if (components_->on_read() ||
               (components_->options.aggregation == VariableAggregation::kNone && !is_shared())) {
      torch::Tensor own = components_->values[*inside].detach();
      apply(change, own, value.detach().to(own.options()));
    } else {
      write_together(*inside, value, change, method);
    }
  }

 private:
  // Returns whether replicas of this process have one component together.
  bool is_shared() const {
    return components_->values.size() > 1 && same_memory(components_->values[1], components_->values[0]);
  }

  // The values are aggregated, then every storage is written by one replica.
  void write_together(Replica& replica, const torch::Tensor& value, VariableChange change, std::string_view method) {
    const PerReplica<torch::Tensor>& values = components_->values;
    const torch::Tensor result = components_->aggregate(replica, value, method);
    if (replica.local_id() == 0 || !is_shared()) {
      torch::Tensor own = values[replica].detach();
      apply(change, own, result);
    }
    replica.barrier();  // nobody reads before all have written
  }

  std::shared_ptr<VariableComponents> components_;
};

class HomeElsewhere final : public VariableHome {
 public:
  HomeElsewhere(std::shared_ptr<VariableComponents> components, RemoteVariables& remote, const torch::Tensor& value)
      : components_(std::move(components)),
        remote_(remote),
        variable_(remote.declare({.name = components_->options.name, .value = value.cpu().contiguous()})) {
    remote_.on_refresh([weak = std::weak_ptr(components_), &remote, variable = variable_] {
      if (const auto alive = weak.lock()) spread(*alive, remote.local(variable).value);
    });
  }

  void refresh() override {
    remote_.read(variable_);
    spread(*components_, remote_.local(variable_).value);
  }

  // One replica writes for all.
  void write(Replica* inside, const torch::Tensor& value, VariableChange change, std::string_view method) override {
    const torch::NoGradGuard no_grad;
    if (inside == nullptr) return send(value, change);
    const torch::Tensor result = components_->aggregate(*inside, value, method);
    components_->core->launch().meet(inside->local_id(), method, nullptr,
                                     [&](std::span<void* const>) { send(result, change); });
  }

 private:
  // The components become what the other processes say.
  static void spread(const VariableComponents& components, const torch::Tensor& value) {
    components.each([&](torch::Tensor& component) { component.copy_(value.view(component.sizes())); });
  }

  void send(const torch::Tensor& value, VariableChange change) {
    const torch::NoGradGuard no_grad;
    const torch::TensorOptions like = remote_.local(variable_).value.options();
    const torch::Tensor whole = value.detach().to(like).expand(components_->values[0].sizes()).contiguous();
    if (change == VariableChange::kAssign) {
      remote_.assign(variable_, whole);
    } else {
      remote_.add(variable_, change == VariableChange::kAdd ? whole : -whole);
    }
    spread(*components_, remote_.local(variable_).value);
  }

  std::shared_ptr<VariableComponents> components_;
  RemoteVariables& remote_;
  std::size_t variable_;  // the number of the variable there
};

}  // namespace

torch::Tensor VariableComponents::aggregate(Replica& replica, const torch::Tensor& value,
                                            std::string_view method) const {
  Communicator& group = replica.communicator();
  if (options.aggregation == VariableAggregation::kNone && group.size() > 1) {
    fail<InvalidArgument>("[variable] ", options.name, ": ", method, " from the replicas of ", core->plan().name,
                          ", which keep it together, needs an aggregation (sum, mean or only_first_replica) that says "
                          "how their values become ",
                          "one; give it in VariableOptions, or assign outside run()");
  }
  const torch::NoGradGuard no_grad;
  torch::Tensor result = value.detach().to(values[replica].options(), /*non_blocking=*/false, /*copy=*/true);
  if (options.aggregation == VariableAggregation::kOnlyFirstReplica) {
    group.broadcast({&result, 1}, 0);
  } else {
    group.all_reduce({&result, 1}, sums() ? ReduceOp::kSum : ReduceOp::kMean);
  }
  return result;
}

std::unique_ptr<VariableHome> make_home_here(std::shared_ptr<VariableComponents> components) {
  return std::make_unique<HomeHere>(std::move(components));
}

std::unique_ptr<VariableHome> make_home_elsewhere(std::shared_ptr<VariableComponents> components,
                                                  RemoteVariables& remote, const torch::Tensor& value) {
  return std::make_unique<HomeElsewhere>(std::move(components), remote, value);
}

}  // namespace cohort
