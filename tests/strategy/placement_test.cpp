// Where variables live decides who holds them and how gradients become parameters.
#include "strategy/placement.h"

#include <gtest/gtest.h>

#include "cohort/error.h"
#include "strategy/remote_variables.h"
#include "tests/support/errors.h"

namespace cohort::placement_test {
namespace {

using testing::expect_error;

LogicalDevice device(const std::string& type, int index) {
  return {
      .spec = DeviceSpec::parse(c10::str("/", type, ":", index)).canonical(),
      .torch_device = type == "GPU" ? torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index)) : torch::kCPU};
}

std::vector<LogicalDevice> two(const std::string& type) {
  return {device(type, 0), device(type, 1)};
}

// Two replicas on CPUs with kernels for their parameters.
PathFacts on_cpus() {
  return {.add_in_place = true, .has_kernels = true, .no_messages_in_place = "in place"};
}

TEST(Placement, ReplicasHoldTheirOwnVariables) {
  const auto placement = make_replicated(two("GPU"));
  EXPECT_EQ(placement->devices().size(), 2U);
  EXPECT_EQ(placement->device(1).name(), "/GPU:1");
  EXPECT_EQ(placement->module_device(1).name(), "/GPU:1");
  EXPECT_EQ(placement->holder(1), 1);
  EXPECT_EQ(placement->step_weight(), 1.0);
  placement->require_here("nothing to refuse");
}

TEST(Placement, GradientsAreAddedInPlaceOnlyWhereThatIsPossibleAndWanted) {
  const auto placement = make_replicated(two("CPU"));
  const PathChoice choice = placement->path(on_cpus());
  EXPECT_EQ(choice.path, GradientPath::kSharedMemory);
  EXPECT_STREQ(choice.no_messages, "in place");
  PathFacts facts = on_cpus();
  facts.in_place = GradientPath::kOverWorkers;
  EXPECT_EQ(placement->path(facts).path, GradientPath::kOverWorkers);
  for (bool PathFacts::*without : {&PathFacts::add_in_place, &PathFacts::has_kernels}) {
    facts = on_cpus();
    facts.*without = false;
    EXPECT_EQ(placement->path(facts).path, GradientPath::kMessages);
    EXPECT_EQ(placement->path(facts).no_messages, nullptr);
  }
}

TEST(Placement, ReplicasOnCpusUseTheOnlyCopyWhereItLies) {
  const auto placement = make_central(two("CPU"), device("CPU", 0));
  EXPECT_EQ(placement->devices().size(), 1U);
  EXPECT_EQ(placement->holder(1), 0);
  EXPECT_EQ(placement->module_device(1).name(), "/CPU:0");
  EXPECT_EQ(placement->path(on_cpus()).path, GradientPath::kSharedMemory);
  PathFacts facts = on_cpus();
  facts.has_kernels = false;
  EXPECT_EQ(placement->path(facts).path, GradientPath::kParameterDevice);
}

TEST(Placement, ReplicasElsewhereCopyTheOnlyCopy) {
  const auto placement = make_central(two("GPU"), device("CPU", 0));
  EXPECT_EQ(placement->device(1).name(), "/CPU:0");
  EXPECT_EQ(placement->module_device(1).name(), "/GPU:1");
  EXPECT_EQ(placement->holder(1), 1);
  EXPECT_EQ(placement->path({.no_messages_in_place = "in place"}).path, GradientPath::kParameterDevice);
}

TEST(Placement, OtherProcessesKeepTheVariablesAndApplyTheGradients) {
  const ServersPlacement placement(two("CPU"), device("CPU", 0), nullptr);
  EXPECT_EQ(placement.path(on_cpus()).path, GradientPath::kServers);
  EXPECT_EQ(placement.holder(1), 0);
  expect_error<Unimplemented>([&] { placement.require_here("[test] the averages are not here"); },
                              "[test] the averages");
}

}  // namespace
}  // namespace cohort::placement_test
