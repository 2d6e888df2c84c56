// Terms of the loss in steps that XLA compiles.
#include <gtest/gtest.h>

#include "cohort/cluster/xla_strategy.h"
#include "tests/support/xla.h"
#include "tests/wings/functional/train/add_loss_facts.h"

namespace cohort::add_loss_xla_test {
namespace {

class AddLossXla : public testing::XlaCpuTest {};

TEST_F(AddLossXla, HasKerasNumbers) {
  for (const int replicas : {2, 1}) {  // the first one makes the devices
    const XlaStrategy strategy({.plugin = "cpu", .num_devices = replicas});
    const auto scope = strategy.scope();
    testing::expect_keras_numbers(testing::functional_autoencoder());
    testing::expect_keras_numbers(testing::autoencoder_of_module());
  }
}

}  // namespace
}  // namespace cohort::add_loss_xla_test
