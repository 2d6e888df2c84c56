#include "models/command/sharding_flags.h"

#include <c10/util/StringUtil.h>

#include "base/fail.h"

namespace cohort {

void check_sharding(const StrategyFlags& flags) {
  if (flags.sharding_stage < 0 || flags.sharding_stage > 3) {
    fail<InvalidArgument>("[train] --sharding_stage is ", flags.sharding_stage, ", wanted 0 (none) to 3");
  }
  if (flags.sharding_min_unit_bytes < 0) {
    fail<InvalidArgument>("[train] --sharding_min_unit_bytes is ", flags.sharding_min_unit_bytes, ", wanted 0 or more");
  }
  if (flags.sharding_offload_states && flags.sharding_stage == 0) {
    fail<InvalidArgument>("[train] --sharding_offload_states=true has no meaning under --sharding_stage=0, only under ",
                          "1 to 3, which a single replica may have, too");
  }
  if (flags.sharding_stage == 3) return;
  const StrategyFlags defaults;
  if (flags.reshard_after_forward != defaults.reshard_after_forward) {
    fail<InvalidArgument>("[train] --reshard_after_forward=false has no meaning under --sharding_stage=",
                          flags.sharding_stage, ", only under 3");
  }
  if (flags.sharding_min_unit_bytes != defaults.sharding_min_unit_bytes) {
    fail<InvalidArgument>("[train] --sharding_min_unit_bytes=", flags.sharding_min_unit_bytes,
                          " has no meaning under --sharding_stage=", flags.sharding_stage, ", only under 3");
  }
}

ShardingOptions sharding_of(const StrategyFlags& flags) {
  return {.stage = static_cast<int>(flags.sharding_stage),
          .reshard_after_forward = flags.reshard_after_forward,
          .min_unit_bytes = flags.sharding_min_unit_bytes,
          .offload_states = flags.sharding_offload_states};
}

void describe_sharding(StrategyFlags& flags, ConfigFields& fields) {
  const auto add = [&](const char* name, auto& setting, const std::string& help) {
    fields.add(name, setting, help).flag = c10::str("--", name);
  };
  add("sharding_stage", flags.sharding_stage,
      "states that the replicas share instead of each having all of them: 0: none; 1: the optimizer's slots; 2: "
      "the gradients, too; 3: the parameters, too");
  add("reshard_after_forward", flags.reshard_after_forward,
      "under sharding_stage 3, whether parameters are freed in the forward pass and gathered again for backward");
  add("sharding_min_unit_bytes", flags.sharding_min_unit_bytes,
      "under sharding_stage 3, the bytes of parameters below which neighbouring layers are gathered as one");
  add("sharding_offload_states", flags.sharding_offload_states,
      "under sharding_stage 1 to 3, whether a GPU's part of the states lies in the host's memory and is updated there");
}

}  // namespace cohort
