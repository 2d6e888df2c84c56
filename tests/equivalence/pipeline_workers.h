// Models whose stages lie with workers, which are threads on loopback or processes, their training, and what it has to
// come to.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cohort/cluster/multi_worker_pipeline.h"
#include "cohort/train/more_callbacks.h"
#include "tests/equivalence/mesh_workers.h"
#include "tests/support/files.h"

namespace cohort::equivalence::pipeline_workers {

inline constexpr int64_t kEpochs = 4;
inline constexpr int64_t kRows = 4 * 12 + 1;  // five steps a pass; the last batch has one example
inline constexpr int64_t kLabels = 6;

struct Shape {
  int workers = 2;
  int devices = 1;  // of each
  int batch = 1;
  int stages = 2;
};

inline DeviceMesh mesh_of(const Shape& shape) {
  const std::vector<std::string> devices = devices_of_workers(shape.workers, shape.devices);
  if (shape.batch == 1) return DeviceMesh({shape.stages}, {"stage"}, devices);
  return DeviceMesh({shape.batch, shape.stages}, {"batch", "stage"}, devices);
}

using OfStages = std::function<void(const MultiWorkerPipelineStrategy& strategy)>;

// Runs fn as each worker, which has the options options_of(rank), and rethrows the first failure in rank order.
inline void with_stages(int workers, const std::function<PipelineOptions(int rank)>& options_of, const OfStages& fn) {
  testing::in_cluster(workers, [&](int rank, const ClusterOptions& cluster) {
    fn(MultiWorkerPipelineStrategy(options_of(rank), cluster));
  });
}

inline void with_stages(const Shape& shape, const PipelineScheduleOptions& schedule, const OfStages& fn,
                        const std::vector<std::string>& cut = {}) {
  const PipelineOptions options{
      .mesh = mesh_of(shape), .schedule = schedule, .cut = cut, .exchange = {.threads_per_replica = 1}};
  with_stages(
      shape.workers, [&](int /*rank*/) { return options; }, fn);
}

// Options of stages on workers, each of which has both parts of its parameters. The cut lies between columns and rows.
inline PipelineOptions stages_of_parts(int workers, int batch, const PipelineScheduleOptions& schedule) {
  const std::vector<std::string> devices = devices_of_workers(workers, 2 * 2 * batch / workers);
  return {.mesh = DeviceMesh({batch, 2, 2}, {"batch", "model", "stage"}, devices),
          .layout = mesh_runs::nets()[3].layout,
          .schedule = schedule,
          .cut = {"dense_1"},
          .exchange = {.threads_per_replica = 1}};
}

inline std::vector<Layer> layers() {
  return {Dense(10, Activation::kTanh),
          Dense({.units = 9, .activation = "relu", .kernel_regularizer = Regularizer::l2(0.01)}),
          LayerNormalization(),
          Dense(8, Activation::kSoftmax),
          Dense(7, Activation::kGelu),
          Dense(kLabels)};
}

// The places where 2, 3, 4 or more chunks of them begin: those that are measured may have no parameter.
inline std::vector<std::string> cut_of(int chunks) {
  if (chunks == 2) return {"layer_normalization"};
  if (chunks == 3) return {"dense_1", "dense_2"};
  if (chunks == 4) return {"dense_1", "layer_normalization", "dense_3"};
  return {"dense_1", "layer_normalization", "dense_2", "dense_3", "dense_4"};
}

// Returns batches of examples of a shape.
inline Dataset batches_of(std::vector<int64_t> shape) {
  const at::Generator own = mesh_runs::generator(7);
  shape.insert(shape.begin(), kRows);
  return Dataset::from_tensor_slices(Example{.x = torch::randn(shape, own, torch::kDouble),
                                             .y = torch::randint(kLabels, {kRows}, own, torch::kLong),
                                             .weight = torch::rand({kRows}, own, torch::kDouble)})
      .batch(12);
}

inline Dataset batches() {
  return batches_of({6});
}

inline Optimizer adam(double clipnorm = 0.0) {
  AdamOptions options{.learning_rate = 0.02};
  options.gradient.global_clipnorm = clipnorm;
  options.ema.use_ema = true;
  return Adam(options);
}

// Every run begins with the same values, which a generator of the caller's own draws.
template <typename AnyModel>
void set_drawn_weights(AnyModel& model) {
  const at::Generator own = mesh_runs::generator(3);
  NamedTensors weights = model.weights();
  for (auto& [name, value] : weights) {
    if (value.is_floating_point()) value = torch::rand(value.sizes(), own, torch::kDouble) - 0.3;
  }
  model.set_weights(weights);
}

inline Sequential made(const std::vector<Layer>& net, const Optimizer& rule) {
  Sequential model(net, {.dtype = torch::kDouble});
  model.build({6});
  set_drawn_weights(model);
  model.compile({.optimizer = rule,
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy()}});
  return model;
}

inline Outcome under(const Strategy& strategy, const Optimizer& rule = adam(), const std::vector<Layer>& net = layers(),
                     int64_t epochs = kEpochs) {
  const auto scope = strategy.scope();
  Sequential model = made(net, rule);
  return outcome_of(model, batches(), epochs);
}

// Starts the workers, whose stages have the cut cut_of(2), and runs the function as each.
using WithStages = std::function<void(const OfStages& fn)>;

// Expects backups, whole and sharded, to resume with the same numbers on the same workers and on one device, and the
// whole ones of one device to resume on the workers.
inline void expect_checkpoints_of_one_device(const WithStages& with_stages) {
  const auto run = [&](const Strategy& strategy, int64_t epochs, const std::filesystem::path& folder, bool sharded) {
    const auto scope = strategy.scope();
    Sequential model = made(layers(), adam());
    (void)model.fit(
        batches(),
        {.epochs = epochs,
         .callbacks = {BackupAndRestore({.directory = folder, .delete_checkpoint = false, .sharded = sharded})},
         .verbose = Verbose::kSilent});
    return model.weights();
  };
  const testing::TemporaryFolder folder;
  const OneDeviceStrategy one("/CPU:0");
  const NamedTensors wanted = run(one, 2, folder.path() / "wanted", false);
  run(one, 1, folder.path() / "whole", false);
  for (const bool sharded : {false, true}) {
    SCOPED_TRACE(sharded);
    const auto parts = folder.path() / (sharded ? "sharded" : "parts");
    with_stages([&](const MultiWorkerPipelineStrategy& strategy) {
      run(strategy, 1, parts, sharded);
      expect_same(run(strategy, 2, parts, sharded), wanted);  // with its own state, where it was left
      if (!sharded) expect_same(run(strategy, 2, folder.path() / "whole", false), wanted);
    });
    expect_same(run(one, 2, parts, false), wanted);
  }
}

}  // namespace cohort::equivalence::pipeline_workers
