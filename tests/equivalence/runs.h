// The parts that the equivalence tests have in common: the strategies, the optimizers, the batches, and the run.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "base/extension.h"
#include "cohort/optimizer.h"
#include "cohort/strategy.h"
#include "models/command/strategy_table.h"
#include "step/parameter_sharing.h"
#include "tests/equivalence/rules.h"

namespace cohort::equivalence {

constexpr int kSteps = 20;
constexpr int64_t kFeatures = 12;
constexpr int64_t kClasses = 5;

// The global batches of a run: of that size and, now and then, short ones.
inline std::vector<Example> global_batches(torch::ScalarType dtype, bool short_ones, int64_t whole = 12) {
  torch::manual_seed(11);
  std::vector<Example> batches;
  for (int step = 0; step < kSteps; ++step) {
    int64_t size = whole;
    if (short_ones && step % 5 == 4) size = 7;   // does not divide
    if (short_ones && step % 10 == 9) size = 1;  // leaves shares empty
    batches.push_back(
        {.x = torch::randn({size, kFeatures}, dtype), .y = torch::randint(kClasses, {size}, torch::kLong)});
  }
  return batches;
}

// The first replicas get the larger shares, the last ones perhaps nothing.
inline PerReplica<Example> split(const Example& batch, int replicas) {
  std::vector<Example> shares;
  const int64_t share = (batch.size() + replicas - 1) / replicas;
  for (int64_t r = 0; r < replicas; ++r) {
    shares.push_back(batch.rows(std::min(batch.size(), r * share), std::min(batch.size(), (r + 1) * share)));
  }
  return PerReplica<Example>(shares);
}

struct RunOptions {
  torch::ScalarType dtype = torch::kDouble;
  bool short_batches = true;
  int64_t batch = 12;
};

// All parameters and buffers of the replicas' copies after kSteps, as one vector a replica. `make` gives the module, in
// the run's dtype.
template <typename Make>
std::vector<torch::Tensor> copies_after(const Strategy& strategy, const Optimizer& rule, const RunOptions& run,
                                        const Make& make) {
  torch::manual_seed(5);
  const auto scope = strategy.scope();
  auto net = strategy.mirror([&] {
    auto module = make();
    module->to(run.dtype);
    return module;
  });
  auto optimizer = strategy.optimizer(net, rule);
  for (const Example& batch : global_batches(run.dtype, run.short_batches, run.batch)) {
    strategy.run(
        [&](Replica& replica, const Example& part) {
          const Example share = part.to(replica.device());
          const auto each = torch::nn::functional::cross_entropy(
              net[replica]->forward(share.x), share.y,
              torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
          optimizer[replica].minimize(replica.global_mean(each));
        },
        split(batch, strategy.num_local_replicas()));
  }
  EXPECT_EQ(optimizer.iterations(), kSteps);
  std::vector<torch::Tensor> all;
  for (const auto& copy : net.copies()) {
    std::vector<torch::Tensor> flat;
    for (const auto& parameter : copy->parameters()) flat.push_back(parameter.detach().reshape({-1}).clone());
    for (const auto& buffer : copy->buffers()) flat.push_back(buffer.reshape({-1}).to(run.dtype));
    all.push_back(torch::cat(flat).cpu());
  }
  return all;
}

// The same of replica 0, having seen that the replicas' copies are the same bits.
template <typename Make>
torch::Tensor weights_after(const Strategy& strategy, const Optimizer& rule, const RunOptions& run, const Make& make) {
  const std::vector<torch::Tensor> all = copies_after(strategy, rule, run, make);
  for (const torch::Tensor& copy : all) EXPECT_TRUE(torch::equal(copy, all[0])) << "the replicas' copies differ";
  return all[0];
}

inline double distance(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

struct Case {
  std::string name;
  std::function<Strategy()> make;
};

inline void add_sharded(std::vector<Case>& all) {
  if (extensions<ParameterSharing>().empty()) return;  // a build without the wing
  // States that the replicas share: by messages (one a tensor, and cut anywhere), and along one of two axes.
  for (const auto& [replicas, packs, stage] :
       {std::tuple(3, 3, 1), std::tuple(2, 0, 1), std::tuple(3, 3, 2), std::tuple(2, 0, 2)}) {
    all.push_back({c10::str("mirrored_", replicas, "_stage_", stage, "_packs_", packs),
                   [replicas = replicas, packs = packs, stage = stage] {
                     return MirroredStrategy(
                         {.devices = cpu_devices(replicas),
                          .exchange = {.cross_device_ops = "reduction_to_one_device", .num_packs = packs},
                          .sharding = {.stage = stage}});
                   }});
  }
  for (const int stage : {1, 2}) {
    all.push_back({c10::str("mirrored_2_by_2_stage_", stage), [=] {
                     return MirroredStrategy({.exchange = {.cross_device_ops = "hierarchical_copy"},
                                              .sharding = {.stage = stage, .axis = "batch"},
                                              .mesh = DeviceMesh({2, 2}, {"replica", "batch"}, cpu_devices(4))});
                   }});
  }
  all.push_back({"mirrored_3_auto_stage_2",
                 [] { return MirroredStrategy({.devices = cpu_devices(3), .sharding = {.stage = 2}}); }});
  // Units of a layer each, freed after forward or not, and along one of two axes all in one.
  for (const auto& [replicas, reshard] : {std::pair(3, true), std::pair(2, false)}) {
    all.push_back({c10::str("mirrored_", replicas, "_stage_3_", reshard ? "freed" : "kept"),
                   [replicas = replicas, reshard = reshard] {
                     return MirroredStrategy(
                         {.devices = cpu_devices(replicas),
                          .sharding = {.stage = 3, .reshard_after_forward = reshard, .min_unit_bytes = 0}});
                   }});
  }
  all.push_back({"mirrored_2_by_2_stage_3", [] {
                   return MirroredStrategy({.exchange = {.cross_device_ops = "hierarchical_copy"},
                                            .sharding = {.stage = 3, .axis = "batch"},
                                            .mesh = DeviceMesh({2, 2}, {"replica", "batch"}, cpu_devices(4))});
                 }});
}

inline const std::vector<Case>& cases() {
  static const std::vector<Case> list = [] {
    std::vector<Case> all;
    for (const int replicas : {1, 2, 3, 4}) {
      for (const char* ops : {"auto", "ring", "reduction_to_one_device", "hierarchical_copy"}) {
        all.push_back({c10::str("mirrored_", replicas, "_", ops), [=] {
                         return MirroredStrategy(
                             {.devices = cpu_devices(replicas), .exchange = {.cross_device_ops = ops}});
                       }});
      }
      all.push_back({c10::str("central_storage_", replicas),
                     [=] { return CentralStorageStrategy({.compute_devices = cpu_devices(replicas)}); }});
    }
    add_sharded(all);
    for (const int packs : {0, 3}) {
      all.push_back({c10::str("mirrored_2_packs_", packs), [=] {
                       return MirroredStrategy(
                           {.devices = cpu_devices(2),
                            .exchange = {.cross_device_ops = "reduction_to_one_device", .num_packs = packs}});
                     }});
    }
    for (const StrategyRow& row : strategy_table()) {
      for (const int64_t replicas : {1, 2, 3}) {
        const bool here =
            row.takes == StrategyTakes::kReplicas || (row.takes == StrategyTakes::kOneReplica && replicas == 1);
        if (!here) continue;
        all.push_back({c10::str("table_", row.name, "_", replicas),
                       [=] { return make_strategy({.distribution_strategy = row.name, .num_replicas = replicas}); }});
      }
    }
    return all;
  }();
  return list;
}

}  // namespace cohort::equivalence
