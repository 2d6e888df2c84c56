// Replicas of several cores of XLA's plugin for CPUs, and a network for images that are divided among them.
#pragma once

#include <gtest/gtest.h>

#include "cohort/cluster/xla_strategy.h"
#include "tests/equivalence/runs.h"
#include "tests/support/xla.h"

namespace cohort::equivalence {

inline constexpr const char* kEightDevices = "cpu_device_count=8";

class XlaCores : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cohort::testing::cpu_plugin() == nullptr) GTEST_SKIP() << cohort::testing::kNoCpuPlugin;
    (void)XlaStrategy({.plugin = "cpu", .plugin_options = kEightDevices});  // before the first backward
  }
};

// Convolutions, one of them with stride 2, batch norm, pooling and a classifier.
struct Cnn : torch::nn::Module {
  Cnn() {
    stem =
        register_module("stem", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 5).stride(2).padding(2).bias(false)));
    norm = register_module("norm", torch::nn::BatchNorm2d(4));
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 5, 3).padding(1)));
    head = register_module("head", torch::nn::Linear(5, 3));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor stemmed = torch::max_pool2d(torch::relu(norm(stem(x))), 3, 2, 1);
    return head(torch::relu(conv(stemmed)).mean({2, 3}));
  }
  torch::nn::Conv2d stem{nullptr}, conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear head{nullptr};
};

inline Example classified(int64_t examples) {
  torch::manual_seed(11);
  return {.x = torch::randn({examples, 3, 13, 11}, torch::kDouble), .y = torch::randint(3, {examples}, torch::kLong)};
}

inline Strategy cut(const std::vector<int64_t>& dims, int replicas = 1) {
  int cores = 1;
  for (const int64_t parts : dims) cores *= static_cast<int>(parts);
  return XlaStrategy({.plugin = "cpu",
                      .num_devices = replicas * cores,
                      .plugin_options = kEightDevices,
                      .input_partition_dims = dims});
}

}  // namespace cohort::equivalence
