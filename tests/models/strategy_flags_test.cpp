#include "cohort/models/strategy_flags.h"

#include <gtest/gtest.h>

#include "cohort/cluster/parameter_server_strategy.h"
#include "cohort/cluster/xla_strategy.h"
#include "cohort/parallel/mesh_strategy.h"
#include "cohort/parallel/pipeline_schedule.h"

namespace cohort::strategy_flags_test {
namespace {

// The header of the flags includes no wing, so it repeats them.
TEST(StrategyFlags, HaveTheDefaultsOfTheOptionsOfWings) {
  const StrategyFlags flags;
  EXPECT_EQ(flags.sequence_parallel, MeshOptions().sequence_parallel);
  EXPECT_EQ(flags.pipeline_microbatches, Schedule1F1B().microbatches);
  EXPECT_EQ(std::string(flags.matmul_precision), XlaStrategyOptions().matmul_precision);
  EXPECT_EQ(flags.ps_replicas, ParameterServerOptions().replicas);
}

}  // namespace
}  // namespace cohort::strategy_flags_test
