#include "models/command/exchange_flags.h"

#include <c10/util/StringUtil.h>

#include <limits>

#include "base/fail.h"
#include "collective/algorithms/cross_device_sum.h"
#include "collective/algorithms/levels.h"
#include "collective/gradient_compression.h"
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
  std::string how = "how gradients travel where there are messages, as for num_packs: rounded to a dtype";
  std::vector<std::string_view> names;
  for (const GradientCompression* row : gradient_compressions()) {
    names.push_back(row->name);
    if (row->make != nullptr) how += c10::str(", or ", row->name, ", ", row->help);
  }
  add("gradient_compression", flags.gradient_compression, how, c10::str(c10::Join(", ", names)));
}

}  // namespace cohort
