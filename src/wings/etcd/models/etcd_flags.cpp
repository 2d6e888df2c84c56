#include "wings/etcd/models/etcd_flags.h"

#include "base/fail.h"
#include "wings/etcd/rpc/etcd_address.h"

namespace cohort {

namespace {

void check_coordination(const StrategyFlags& flags, const StrategyRow& row) {
  if (flags.coordination->empty()) return;
  if (!parse_etcd_address(*flags.coordination).password.empty()) {
    fail<InvalidArgument>(
        "[train] --coordination has a password: arguments stand in the list of processes and in the configuration of ",
        "the run, where others read them; set COHORT_COORDINATION");
  }
  if (row.joins_others && row.takes != StrategyTakes::kCluster) return;
  fail<InvalidArgument>("[train] --coordination has no meaning under --distribution_strategy=", row.name,
                        ", only under multi_worker_mirrored and tpu");
}

void describe_coordination(StrategyFlags& flags, ConfigFields& fields) {
  fields
      .add("coordination", flags.coordination,
           "what keeps the membership of multi_worker_mirrored and tpu in place of the first worker: "
           "etcd://host:port[,host:port...][/job], etcds:// over TLS; empty: COHORT_COORDINATION")
      .flag = "--coordination";
}

}  // namespace

FlagsOfWing etcd_flags() {
  return {.place = FlagPlace::kLast, .describe = describe_coordination, .check = check_coordination};
}

}  // namespace cohort
