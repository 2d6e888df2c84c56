#include "strategy/combinations.h"

#include <gmock/gmock.h>

#include "cohort/cohort.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::combinations_test {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

TEST(Combinations, ARefusedPairSaysHowItWasAskedForAndWhy) {
  const AskedFor inputs{.feature = kInputAxis, .said = "the axis \"space\" divides inputs"};
  const AskedFor stages{.feature = kPipeline, .said = "the mesh has stages"};
  const char* wanted =
      "[here] the axis \"space\" divides inputs and the mesh has stages, which do not go together: the stages of a "
      "pipeline take whole examples; use one of the two axes";
  EXPECT_EQ(error_of<Unimplemented>([&] { require_pair("[here]", inputs, stages); }), wanted);
  EXPECT_THAT(error_of<Unimplemented>([&] { require_pair("[here]", stages, inputs); }), HasSubstr("whole examples"));
  require_pair("[here]", inputs, {.feature = kSharedSlots, .said = "sharding.stage is 1"});
}

TEST(Combinations, AStrategyIsRefusedByTheOptionsThatItHas) {
  const auto error = [](const MirroredOptions& options) {
    return error_of<InvalidArgument>([&] { const MirroredStrategy strategy(options); });
  };
  EXPECT_THAT(
      error({.devices = cpu_devices(2), .exchange = {.gradient_compression = "power_sgd"}, .sharding = {.stage = 2}}),
      HasSubstr("mirrored: sharding.stage is 2 and gradient_compression is power_sgd, which do not go "
                "together: owners take sums of slices"));
}

TEST(Combinations, TheDocumentationHasTheTable) {
  EXPECT_THAT(testing::read_file("docs/parallelism.md"), HasSubstr(combinations_table()));
}

}  // namespace
}  // namespace cohort::combinations_test
