#include "models/command/exchange_flags.h"

#include <c10/util/StringUtil.h>

#include <limits>
#include <tuple>

#include "base/fail.h"
#include "collective/algorithms/cross_device_sum.h"
#include "collective/algorithms/levels.h"
#include "collective/process/transports.h"
#include "models/command/strategy_table.h"

namespace cohort {

std::string exchange_of(const StrategyFlags& flags) {
  return flags.all_reduce_alg->empty() ? "auto" : lower(flags.all_reduce_alg);
}

int packs_of(const StrategyFlags& flags) {
  if (flags.num_packs < 0 || flags.num_packs > std::numeric_limits<int>::max()) {
    fail<InvalidArgument>("[train] --num_packs is ", flags.num_packs, ", wanted 0 or more");
  }
  return static_cast<int>(flags.num_packs);
}

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

void check_algorithm(const StrategyFlags& flags) {
  if (*flags.collective_algorithm == *StrategyFlags().collective_algorithm) return;
  if (lower(flags.distribution_strategy) != "multi_worker_mirrored") {
    fail<InvalidArgument>("[train] --collective_algorithm=", flags.collective_algorithm,
                          " has no meaning under --distribution_strategy=", flags.distribution_strategy,
                          ", only under multi_worker_mirrored");
  }
  blame(c10::str("[train] --collective_algorithm=", flags.collective_algorithm),
        [&] { static_cast<void>(levels_named(*flags.collective_algorithm, 1)); });
}

}  // namespace

void check_exchange(const StrategyFlags& flags) {
  check_power_sgd(flags);
  check_local_sgd(flags);
  check_algorithm(flags);
}

CommunicationOptions communication_of(const StrategyFlags& flags) {
  return {.implementation = exchange_of(flags), .algorithm = flags.collective_algorithm};
}

LocalSgdOptions local_sgd_of(const StrategyFlags& flags) {
  return {.sync_every = flags.local_sgd_every,
          .start_iter = flags.local_sgd_start_iter,
          .outer_learning_rate = flags.outer_learning_rate,
          .outer_momentum = flags.outer_momentum};
}

ExchangeOptions message_options(const StrategyFlags& flags) {
  return {.num_packs = packs_of(flags),
          .gradient_compression = flags.gradient_compression,
          .power_sgd = {.matrix_approximation_rank = flags.power_sgd_rank,
                        .start_power_sgd_iter = flags.power_sgd_start_iter}};
}

ExchangeOptions exchange_options(const StrategyFlags& flags) {
  ExchangeOptions options = message_options(flags);
  options.cross_device_ops = exchange_of(flags);
  return options;
}

void describe_exchange(StrategyFlags& flags, ConfigFields& fields) {
  const auto add = [&](const char* name, auto& setting, const std::string& help, const std::string& names = "") {
    ConfigFields::Field& field = fields.add(name, setting, help);
    field.flag = c10::str("--", name);
    field.names = names;
  };
  add("all_reduce_alg", flags.all_reduce_alg, "how gradients are summed, empty as auto",
      c10::str("auto, ", c10::Join(", ", cross_device_sum_names()), "; between workers auto, ",
               c10::Join(", ", transport_names()), ", nccl"));
  add("collective_algorithm", flags.collective_algorithm,
      "how collectives between the workers of multi_worker_mirrored are made of messages: direct, each with each; "
      "hierarchical, within groups of workers and between them; tree, of pairs of pairs; auto: direct up to 64 "
      "workers, and beyond that what takes the least time",
      "auto, direct, hierarchical, tree");
  add("num_packs", flags.num_packs,
      "messages that the gradients are packed into, where there are messages: between workers, GPUs, or under "
      "reduction_to_one_device and hierarchical_copy; 0: no packing");
  add("gradient_compression", flags.gradient_compression,
      "how gradients travel where there are messages, as for num_packs: rounded to a dtype, or power_sgd, by factors "
      "of "
      "low rank",
      "none, bfloat16, float16, power_sgd");
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

}  // namespace cohort
