// Parameters that other processes keep: the replicas' gradients are added up here and sent, and what came of them is
// read back. The optimizer runs there.
#include "wings/parameter_server/step/servers.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/access.h"
#include "base/fail.h"
#include "device/host_memory.h"
#include "device/identity.h"
#include "step/scaling.h"
#include "step/update/slots.h"
#include "strategy/combinations.h"
#include "strategy/core.h"
#include "strategy/module_tensors.h"
#include "strategy/remote_variables.h"
#include "strategy/row_table.h"
#include "wings/parameter_server/step/server_buffers.h"

namespace cohort {

namespace {

class ServersExchange final : public Exchange {
 public:
  ServersExchange(const MirroredModule& module, FlatParameters& flat, const Optimizer& rule)
      : Exchange(flat),
        core_(*Access::core(module)),
        remote_(dynamic_cast<const ServersPlacement&>(core_.placement()).variables()),
        rule_(rule) {
    const torch::NoGradGuard no_grad;
    const std::string speaker = c10::str("[optimizer] ", rule.name(), ":");
    if (rule.gradient().loss_scale) {
      require_pair(speaker, {.feature = kLossScale, .said = "loss_scale is set"},
                   {.feature = kServers, .said = "variables are on parameter servers"});
    }
    if (remote_.keeps_slots()) slots_ = make_slots(flat, rule, 0);
    find_tables(*module.copies().front());
    if (rule.gradient().gradient_accumulation_steps > 1 && has_tables()) {
      require_pair(speaker, {.feature = kAccumulation, .said = "gradient_accumulation_steps is set"},
                   {.feature = kServerTables, .said = "tables are on parameter servers"});
    }
    for (std::size_t g = 0; g < flat.groups().size(); ++g) {
      const FlatGroup& group = flat.groups()[g];
      const bool sums = remote_.keeps_values() && !holds_tables(g);
      masters_.push_back(group.copies[0].is_cpu() ? group.copies[0] : group.copies[0].cpu());
      sums_.push_back(sums ? torch::zeros({group.size}, group.dtype) : torch::Tensor());
    }
    const std::string prefix = c10::str("optimizer_", number(*module.copies().front()), "/");
    for (std::size_t p = 0; p < flat.parameters().size(); ++p) {
      RemoteVariables::Local local{.name = prefix + flat.parameters()[p].name,
                                   .value = run_of(masters_, p),
                                   .optimizer = rule,
                                   .decay = flat.parameters()[p].treatment.decay,
                                   .adapt = flat.parameters()[p].treatment.adapt,
                                   .by_rows = by_rows_[p]};
      for (std::size_t s = 0; s < rule.rule().slots().size() && remote_.keeps_slots(); ++s) {
        local.slots.push_back(shaped(slots_[flat.parameters()[p].group][s], p));
      }
      variables_.push_back(remote_.declare(std::move(local)));
      if (!by_rows_[p]) whole_.push_back(variables_.back());
    }
    if (remote_.keeps_values() && !remote_.keeps_slots()) read_by_rows(module);
    buffers_.emplace(module, remote_, prefix);
    if (!remote_.keeps_values()) {
      remote_.on_release([this, alive = std::weak_ptr(alive_)] {
        if (!alive.expired()) forget_values();
      });
      return;
    }
    remote_.on_refresh([this, alive = std::weak_ptr(alive_)] {
      if (alive.expired()) return;
      if (!remote_.keeps_slots()) forget_tables();
      for (int replica = 0; replica < core_.num_local_replicas(); ++replica) spread(replica);
    });
    remote_.on_save([this, alive = std::weak_ptr(alive_)] {
      if (!alive.expired()) gather();
    });
  }

  Verdict step(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced, StepContext context) override {
    const torch::NoGradGuard no_grad;
    // The gradients of all replicas, as they come to the one that sends them.
    auto mine = gradients;
    core_.launch().meet(replica.local_id(), "minimize", &mine, [&](std::span<void* const> all) {
      const std::size_t count = reduced ? 1 : all.size();
      std::vector<torch::Tensor> sums;
      for (std::size_t p = 0; p < variables_.size(); ++p) {
        if (!by_rows_[p]) sums.push_back(sum_of(all.subspan(0, count), p));
      }
      scale(sums, context.grad_scale);
      remote_.apply_gradients(whole_, sums, buffers_->changes(), context.grad_scale);
    });
    spread(replica.local_id());
    return true;
  }

  Slots slots() const override { return slots_; }
  void spread_slots(int64_t iterations) override {
    for (const std::size_t variable : variables_) remote_.local(variable).iterations = iterations;
  }
  void set_values(int local_id, const std::vector<torch::Tensor>& values) override {
    if (local_id > 0) return;
    for (std::size_t p = 0; p < variables_.size(); ++p) remote_.assign(variables_[p], run_of(values, p));
  }
  std::optional<int64_t> iterations() const override {
    if (!remote_.keeps_slots()) return std::nullopt;
    return remote_.local(variables_.front()).iterations;
  }
  void set_learning_rate(const Schedule& schedule) override {
    if (!schedule.is_constant()) {
      fail<Unimplemented>("[optimizer] set_learning_rate: parameter servers can be told a rate, but not the schedule ",
                          schedule.name(), "; give it to the optimizer when it is made");
    }
    if (remote_.keeps_slots()) remote_.set_learning_rate(variables_, schedule(0));
  }

 private:
  void find_tables(const torch::nn::Module& copy) {
    std::set<std::string> tables;
    for (const auto& item : copy.named_modules()) {
      if (dynamic_cast<const RowTable*>(item.value().get()) != nullptr) tables.insert(item.key() + ".weight");
    }
    for (const FlatParameter& parameter : flat_.parameters()) by_rows_.push_back(tables.contains(parameter.name));
  }
  bool has_tables() const { return std::find(by_rows_.begin(), by_rows_.end(), true) != by_rows_.end(); }
  bool holds_tables(std::size_t group) const { return by_rows_[flat_.groups()[group].members.front()]; }

  // Has the tables of a worker ask for their rows. A table that two optimizers train is asked for by the last one.
  void read_by_rows(const MirroredModule& module) {
    std::map<std::string, std::size_t> variables;
    for (std::size_t p = 0; p < variables_.size(); ++p) variables[flat_.parameters()[p].name] = variables_[p];
    for (const auto& copy : module.copies()) {
      for (const auto& item : copy->named_modules()) {
        auto* table = dynamic_cast<RowTable*>(item.value().get());
        const auto variable = variables.find(item.key() + ".weight");
        if (table == nullptr || variable == variables.end()) continue;
        table->set_look_up([remote = &remote_, number = variable->second](const torch::Tensor& indices) {
          return remote->look_up(number, indices);
        });
      }
    }
  }

  // A worker has no use for the values of tables.
  void forget_tables() {
    if (std::exchange(forgot_tables_, true)) return;
    for (std::size_t g = 0; g < masters_.size(); ++g) {
      if (!holds_tables(g)) continue;
      flat_.release(g);
      release_memory(masters_[g]);
    }
  }

  // The first optimizer's parameters are optimizer_0/..., and so on: every task makes them in the same order. One whose
  // names are all new has the number of an earlier one.
  std::size_t number(const torch::nn::Module& copy) const {
    std::vector<std::string> names;
    for (const FlatParameter& parameter : flat_.parameters()) names.push_back(parameter.name);
    for (const ModuleTensor& buffer : distinct_buffers(copy)) names.push_back("buffers/" + buffer.name);
    for (std::size_t count = 0;; ++count) {
      const std::string prefix = c10::str("optimizer_", count, "/");
      const auto taken = [&](const std::string& name) { return remote_.has(prefix + name); };
      if (std::none_of(names.begin(), names.end(), taken)) return count;
    }
  }

  // A parameter's part of its group, as it lies in memory: in the parameter's shape where that is its layout.
  torch::Tensor shaped(const torch::Tensor& flat, std::size_t p) const {
    const FlatParameter& parameter = flat_.parameters()[p];
    const torch::Tensor run = flat.slice(0, parameter.offset, parameter.offset + parameter.size);
    const torch::Tensor part = flat_.part_of(flat, p);
    return part.is_contiguous() ? run.view(parameter.shape) : run;
  }
  torch::Tensor run_of(const std::vector<torch::Tensor>& flats, std::size_t p) const {
    return shaped(flats[flat_.parameters()[p].group], p);
  }

  torch::Tensor sum_of(std::span<void* const> all, std::size_t p) {
    const std::size_t group = flat_.parameters()[p].group;
    const auto gradient = [&](void* of) -> const torch::Tensor& {
      return (*static_cast<const std::vector<torch::Tensor>*>(of))[p];
    };
    const torch::Tensor& first = gradient(all[0]);
    const bool as_it_is = all.size() == 1 && first.defined() && !first.is_sparse() && first.is_cpu() &&
                          first.is_contiguous() && first.scalar_type() == flat_.groups()[group].dtype;
    if (as_it_is && flat_.part_of(sums_[group], p).is_contiguous()) return first.view(flat_.parameters()[p].shape);
    torch::Tensor home = flat_.part_of(sums_[group], p);
    home.zero_();
    for (void* of : all) {
      const torch::Tensor& each = gradient(of);
      if (each.defined()) home.add_(each.is_sparse() ? each.to_dense().to(home.device()) : each.to(home.device()));
    }
    return run_of(sums_, p);
  }

  // Multiplies the sums by the factor and by those of clipping by norm.
  void scale(std::vector<torch::Tensor>& sums, double factor) const {
    const GradientOptions& gradient = rule_.gradient();
    std::vector<double> factors(sums.size(), factor);
    if (gradient.global_clipnorm > 0.0 || gradient.clipnorm > 0.0) {
      double squared_norm = 0.0;
      for (std::size_t p = 0; p < sums.size(); ++p) {
        const double norm = sums[p].norm(2, torch::kDouble).item<double>() * factor;
        squared_norm += norm * norm;
        factors[p] *= clip_factor(norm * norm, gradient.clipnorm);
      }
      for (double& each : factors) each *= clip_factor(squared_norm, gradient.global_clipnorm);
    }
    for (std::size_t p = 0; p < sums.size(); ++p) {
      if (factors[p] != 1.0) sums[p] = sums[p] * factors[p];
    }
  }

  void spread(int replica) const {
    const torch::NoGradGuard no_grad;
    for (std::size_t g = 0; g < masters_.size(); ++g) {
      if (forgot_tables_ && holds_tables(g)) continue;
      torch::Tensor copy = flat_.groups()[g].copies[static_cast<std::size_t>(replica)];
      if (!same_memory(copy, masters_[g])) copy.copy_(masters_[g]);
    }
    buffers_->spread(replica);
  }

  void gather() {
    const torch::NoGradGuard no_grad;
    for (std::size_t g = 0; g < masters_.size(); ++g) {
      const torch::Tensor& copy = flat_.groups()[g].copies[0];
      if (!same_memory(copy, masters_[g])) masters_[g].copy_(copy);
    }
    buffers_->gather();
  }

  // A server keeps the values elsewhere.
  void forget_values() {
    for (std::size_t g = 0; g < masters_.size(); ++g) {
      for (const torch::Tensor& copy : flat_.groups()[g].copies) release_memory(copy);
      release_memory(masters_[g]);
    }
  }

  StrategyCore& core_;
  RemoteVariables& remote_;
  Optimizer rule_;
  std::vector<torch::Tensor> masters_;             // [group], on the CPU: the first replica's copy where that is
  std::vector<torch::Tensor> sums_;                // [group]
  std::vector<std::vector<torch::Tensor>> slots_;  // [group][slot], on the coordinator
  std::vector<std::size_t> variables_;             // the number of each parameter's variable
  std::vector<bool> by_rows_;                      // whether it is the weight of a row table
  std::vector<std::size_t> whole_;                 // the variables of the others
  bool forgot_tables_ = false;
  std::optional<ServerBuffers> buffers_;
  std::shared_ptr<const ServersExchange*> alive_ = std::make_shared<const ServersExchange*>(this);
};

}  // namespace

std::unique_ptr<Exchange> make_servers_exchange(const ExchangeParts& parts) {
  return std::make_unique<ServersExchange>(parts.module, parts.flat, parts.rule);
}

}  // namespace cohort
