#include "wings/parameter_server/models/server_flags.h"

#include <array>

#include "base/fail.h"
#include "cohort/cluster/parameter_server_strategy.h"
#include "models/command/place_flags.h"
#include "models/command/security_flags.h"

namespace cohort {

namespace {

struct ConsistencyRow {
  const char* name;
  Consistency::Kind kind;
};
constexpr std::array kConsistencies = {
    ConsistencyRow{"asynchronous", Consistency::Kind::kAsynchronous},
    ConsistencyRow{"bounded_staleness", Consistency::Kind::kBoundedStaleness},
    ConsistencyRow{"synchronous", Consistency::Kind::kSynchronous},
};

std::string consistency_names() {
  std::string text;
  for (const ConsistencyRow& row : kConsistencies) text += c10::str(text.empty() ? "" : ", ", row.name);
  return text;
}

Consistency consistency_of(const StrategyFlags& flags) {
  const std::string name = lower(flags.consistency);
  for (const ConsistencyRow& row : kConsistencies) {
    if (name != row.name) continue;
    Consistency consistency{.kind = row.kind};
    if (row.kind != Consistency::Kind::kBoundedStaleness) return consistency;
    if (flags.staleness < 0) fail<InvalidArgument>("[train] --staleness is ", flags.staleness, ", wanted 0 or more");
    consistency.staleness = flags.staleness;
    return consistency;
  }
  fail<InvalidArgument>("[train] --consistency=", flags.consistency, " is not known; there are ", consistency_names());
}

Strategy make_parameter_server(const StrategyFlags& flags) {
  return ParameterServerStrategy({.consistency = consistency_of(flags),
                                  .replicas = static_cast<int>(flags.ps_replicas),
                                  .security = security_of(flags),
                                  .allow_insecure = flags.insecure,
                                  .devices = devices_of(flags)});
}

void check_servers(const StrategyFlags& flags, const StrategyRow& row) {
  if (row.takes != StrategyTakes::kCluster && (lower(flags.consistency) != "asynchronous" || flags.ps_replicas != 1)) {
    fail<InvalidArgument>("[train] --consistency and --ps_replicas have no meaning under --distribution_strategy=",
                          row.name, ", only under parameter_server");
  }
  if (flags.staleness != StrategyFlags().staleness && lower(flags.consistency) != "bounded_staleness") {
    fail<InvalidArgument>("[train] --staleness=", flags.staleness,
                          " has no meaning under --consistency=", flags.consistency, ", only under bounded_staleness");
  }
}

void describe_servers(StrategyFlags& flags, ConfigFields& fields) {
  const auto add = [&](const char* name, auto& setting, const std::string& help) {
    fields.add(name, setting, help).flag = c10::str("--", name);
  };
  add("consistency", flags.consistency, "how parameter_server keeps workers together: " + consistency_names());
  add("staleness", flags.staleness, "steps that a worker may be ahead of the slowest one under bounded_staleness");
  add("ps_replicas", flags.ps_replicas, "servers of parameter_server that have each variable, 1 or 2");
}

}  // namespace

StrategyRow server_row() {
  return {.name = "parameter_server",
          .make = make_parameter_server,
          .takes = StrategyTakes::kCluster,
          .joins_others = true};
}

FlagsOfWing server_flags() {
  return {.place = FlagPlace::kLast, .describe = describe_servers, .check = check_servers};
}

}  // namespace cohort
