#include "models/command/exchange_flags.h"

#include <c10/util/StringUtil.h>

#include <limits>
#include <tuple>

#include "base/fail.h"
#include "collective/algorithms/cross_device_sum.h"
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

void check_exchange(const StrategyFlags& flags) {
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
}

}  // namespace cohort
