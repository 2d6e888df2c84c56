#include "wings/comm_hooks/models/hook_flags.h"

#include <tuple>

#include "base/fail.h"

namespace cohort {

namespace {

void check_power_sgd(const StrategyFlags& flags) {
  if (*flags.gradient_compression == "power_sgd") return;
  const StrategyFlags defaults;
  using Flag = std::tuple<const char*, int64_t, int64_t>;
  for (const auto& [name, value, unset] :
       {Flag("power_sgd_rank", flags.power_sgd_rank, defaults.power_sgd_rank),
        Flag("power_sgd_start_iter", flags.power_sgd_start_iter, defaults.power_sgd_start_iter)}) {
    if (value == unset) continue;
    fail<InvalidArgument>("[train] --", name, "=", value,
                          " has no meaning under --gradient_compression=", flags.gradient_compression,
                          ", only under power_sgd");
  }
}

void check_local_sgd(const StrategyFlags& flags) {
  if (flags.local_sgd_every != 0) {
    if (lower(flags.distribution_strategy) == "multi_worker_mirrored" && flags.mesh->empty()) return;
    fail<InvalidArgument>("[train] --local_sgd_every=", flags.local_sgd_every, " has no meaning under ",
                          "--distribution_strategy=", flags.distribution_strategy,
                          flags.mesh->empty() ? "" : " with --mesh", ", only under multi_worker_mirrored without one");
  }
  const StrategyFlags defaults;
  using Flag = std::tuple<const char*, double, double>;
  for (const auto& [name, value, unset] :
       {Flag("local_sgd_start_iter", static_cast<double>(flags.local_sgd_start_iter),
             static_cast<double>(defaults.local_sgd_start_iter)),
        Flag("outer_learning_rate", flags.outer_learning_rate, defaults.outer_learning_rate),
        Flag("outer_momentum", flags.outer_momentum, defaults.outer_momentum)}) {
    if (value == unset) continue;
    fail<InvalidArgument>("[train] --", name, "=", value, " has no meaning without --local_sgd_every");
  }
}

void check_flags(const StrategyFlags& flags, const StrategyRow& /*row*/) {
  check_power_sgd(flags);
  check_local_sgd(flags);
}

void describe_flags(StrategyFlags& flags, ConfigFields& fields) {
  const auto add = [&](const char* name, auto& setting, const std::string& help) {
    fields.add(name, setting, help).flag = c10::str("--", name);
  };
  add("power_sgd_rank", flags.power_sgd_rank, "the rank of these factors");
  add("power_sgd_start_iter", flags.power_sgd_start_iter, "the first updates, in which gradients travel as they are");
  add("local_sgd_every", flags.local_sgd_every,
      "under multi_worker_mirrored, updates from one exchange of the workers' parameters to the next; 0: gradients are "
      "exchanged in every step");
  add("local_sgd_start_iter", flags.local_sgd_start_iter, "the first updates, in which gradients are exchanged");
  add("outer_learning_rate", flags.outer_learning_rate,
      "the rate of the outer step, by the mean of what the workers have moved; DiLoCo's is 0.7");
  add("outer_momentum", flags.outer_momentum, "its momentum, Nesterov's; DiLoCo's is 0.9");
}

}  // namespace

FlagsOfWing comm_hook_flags() {
  return {.place = FlagPlace::kExchange, .describe = describe_flags, .check = check_flags};
}

}  // namespace cohort
