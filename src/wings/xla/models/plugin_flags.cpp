#include "wings/xla/models/plugin_flags.h"

#include <c10/util/StringUtil.h>

#include <utility>

#include "base/fail.h"
#include "cohort/cluster/multi_worker_strategy.h"
#include "cohort/cluster/xla_strategy.h"
#include "models/command/place_flags.h"
#include "models/command/security_flags.h"

namespace cohort {

namespace {

Strategy make_tpu(const StrategyFlags& flags) {
  check_cluster(flags);
  configure_cluster(flags.worker_hosts, static_cast<int>(flags.task_index));
  const std::string plugin = flags.xla_plugin->empty() ? TPUStrategyOptions().plugin : *flags.xla_plugin;
  return TPUStrategy(std::make_shared<TPUClusterResolver>(flags.tpu),
                     {.plugin = plugin,
                      .num_devices = static_cast<int>(flags.num_replicas) * parts_of(flags),
                      .plugin_options = flags.xla_options,
                      .matmul_precision = flags.matmul_precision,
                      .input_partition_dims = flags.input_partition_dims,
                      .eval_input_partition_dims = flags.eval_input_partition_dims,
                      .membership = membership_of(flags)});
}

Strategy make_xla(const StrategyFlags& flags) {
  return XlaStrategy({.plugin = flags.xla_plugin,
                      .num_devices = static_cast<int>(flags.num_replicas) * parts_of(flags),
                      .plugin_options = flags.xla_options,
                      .matmul_precision = flags.matmul_precision,
                      .input_partition_dims = flags.input_partition_dims,
                      .eval_input_partition_dims = flags.eval_input_partition_dims});
}

void check_plugin(const StrategyFlags& flags, const StrategyRow& row) {
  const std::string name = row.name;
  if (!flags.tpu->empty() && name != "tpu") {
    fail<InvalidArgument>("[train] --tpu=", flags.tpu, " has no meaning under --distribution_strategy=", name,
                          ", only under tpu");
  }
  const bool has_plugin = row.takes == StrategyTakes::kPlugin;
  using Flag = std::pair<const char*, std::string>;
  for (const auto& [flag, value] : {Flag("xla_plugin", flags.xla_plugin), Flag("xla_options", flags.xla_options)}) {
    if (value.empty() || has_plugin) continue;
    fail<InvalidArgument>("[train] --", flag, "=", value, " has no meaning under --distribution_strategy=", name,
                          ", only under tpu and xla");
  }
  if (flags.matmul_precision != XlaStrategyOptions().matmul_precision && !has_plugin) {
    fail<InvalidArgument>("[train] --matmul_precision=", flags.matmul_precision,
                          " has no meaning under --distribution_strategy=", name, ", only under tpu and xla");
  }
  if (flags.num_gpus > 0 && has_plugin) {
    fail<InvalidArgument>("[train] --num_gpus=", flags.num_gpus, " has no meaning under --distribution_strategy=", name,
                          "; --num_replicas is the number of replicas on the plugin's devices");
  }
}

void describe_plugin(StrategyFlags& flags, ConfigFields& fields) {
  const auto add = [&](const char* name, auto& setting, const std::string& help, const std::string& names = "") {
    ConfigFields::Field& field = fields.add(name, setting, help);
    field.flag = c10::str("--", name);
    field.names = names;
  };
  add("tpu", flags.tpu,
      "a TPU: its name, its address (grpc://host:port), local, or empty for the one of the environment");
  add("xla_plugin", flags.xla_plugin,
      "the PJRT plugin of tpu and xla: the path of a shared library, or the name of one that was found (tpu, cuda, "
      "cpu); empty: tpu under tpu, else the first one");
  add("xla_options", flags.xla_options,
      "options that the plugin of tpu and xla takes, as name=value,name=value, such as cpu_device_count=8");
  add("matmul_precision", flags.matmul_precision,
      "how tpu and xla multiply float32: default is the device's way, on TPUs one pass in bfloat16; high, on TPUs "
      "three; highest, float32",
      "default, high, highest");
}

}  // namespace

StrategyRow tpu_row() {
  return {.name = "tpu",
          .make = make_tpu,
          .takes = StrategyTakes::kPlugin,
          .divides = true,
          .joins_others = true,
          .takes_hosts = true};
}

StrategyRow xla_row() {
  return {.name = "xla", .make = make_xla, .takes = StrategyTakes::kPlugin, .divides = true};
}

FlagsOfWing plugin_flags() {
  return {.place = FlagPlace::kDevices, .describe = describe_plugin, .check = check_plugin};
}

}  // namespace cohort
