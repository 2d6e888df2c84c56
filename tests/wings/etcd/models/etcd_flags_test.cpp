#include "wings/etcd/models/etcd_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::etcd_flags_test {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

std::string refusal(const std::string& strategy, const std::string& coordination) {
  StrategyFlags flags;
  flags.distribution_strategy = strategy;
  flags.coordination = coordination;
  return error_of<InvalidArgument>([&] { (void)make_strategy(flags); });
}

TEST(EtcdFlags, ACoordinationIsForStrategiesWithAMembership) {
  for (const char* name : {"mirrored", "one_device"}) {
    EXPECT_THAT(refusal(name, "etcd://a:1"),
                HasSubstr(std::string("--coordination has no meaning under --distribution_strategy=") + name));
  }
  EXPECT_THAT(refusal("multi_worker_mirrored", "http://a:1"), HasSubstr("wanted etcd://HOST:PORT"));
}

TEST(EtcdFlags, APasswordIsNoArgument) {
  const std::string message = refusal("multi_worker_mirrored", "etcd://me:word@a:1");
  EXPECT_THAT(message, HasSubstr("--coordination has a password"));
  EXPECT_EQ(message.find("word@"), std::string::npos);
}

TEST(EtcdFlags, ParameterServersHaveACoordinatorOfTheirOwn) {
  StrategyRow row{.name = "parameter_server", .takes = StrategyTakes::kCluster, .joins_others = true};
  StrategyFlags flags;
  etcd_flags().check(flags, row);
  flags.coordination = "etcd://a:1";
  EXPECT_THAT(error_of<InvalidArgument>([&] { etcd_flags().check(flags, row); }),
              HasSubstr("only under multi_worker_mirrored and tpu"));
  row.takes = StrategyTakes::kReplicas;
  etcd_flags().check(flags, row);
}

}  // namespace
}  // namespace cohort::etcd_flags_test
