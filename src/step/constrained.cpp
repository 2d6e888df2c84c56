#include "step/constrained.h"

#include <ATen/Functions.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "base/access.h"
#include "base/fail.h"
#include "strategy/combinations.h"
#include "strategy/core.h"
#include "strategy/placement.h"

namespace cohort {

void Constrained::constrain(const torch::Tensor& whether) const {
  const torch::NoGradGuard no_grad;
  for (const Entry& entry : list_) {
    if (!entry.parameter.requires_grad()) continue;
    const torch::Tensor view = entry.view(entry.parameter);
    const torch::Tensor value = entry.value(view);
    if (!value.defined() || value.sizes() != view.sizes()) {
      fail<InvalidArgument>("[layers] a constraint made ",
                            value.defined() ? c10::str("the shape ", value.sizes()) : std::string("nothing"),
                            " of a parameter of the shape ", view.sizes());
    }
    view.copy_(whether.defined() ? at::where(whether, value, view) : value);
  }
}

namespace {

void require_constrainable(const StrategyCore& core, const std::string& speaker, const std::string& layer) {
  const AskedFor asked{.feature = kConstraints, .said = "the layer \"" + layer + "\" has a constraint"};
  require_pairs(speaker, asked, core.plan());
  const auto refuse = [&](bool there, std::string_view feature, const char* said) {
    if (there) require_pair(speaker, asked, {.feature = feature, .said = said});
  };
  refuse(core.shares_parameters(), kSharedParameters, "sharding.stage is 3");
  refuse(core.plan().sharding.offload_states, kOffloaded, "sharding.offload_states is true");
  core.placement().require_here(speaker + " " + asked.said + ", but parameter servers change the parameters");
  for (int replica = 0; replica < core.num_local_replicas(); ++replica) {
    const bool own = core.placement().holder(replica) == replica &&
                     core.placement().device(replica).name() == core.placement().module_device(replica).name();
    refuse(!own, kCentral, "the replicas use one copy of the parameters");
  }
}

}  // namespace

ConstrainedModules constrained_modules(const MirroredModule& module, const std::string& speaker) {
  ConstrainedModules all;
  std::string first;
  bool any = false;
  for (const auto& copy : module.copies()) {
    std::vector<const Constrained*>& own = all.emplace_back();
    for (const auto& item : copy->named_modules()) {
      const auto* const each = dynamic_cast<const Constrained*>(item.value().get());
      if (each == nullptr || !each->constrained()) continue;
      if (std::find(own.begin(), own.end(), each) != own.end()) continue;  // models may have a layer several times
      if (first.empty()) first = item.key();
      own.push_back(each);
      any = true;
    }
  }
  if (!any) return {};
  require_constrainable(*Access::core(module), speaker, first);
  return all;
}

}  // namespace cohort
