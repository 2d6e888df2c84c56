// A mesh over the workers of a cluster against one device. Lines along its axes lie in one worker or go through
// several.
#include "tests/equivalence/mesh_workers.h"

#include "cohort/models/layouts.h"
#include "cohort/train/more_callbacks.h"
#include "tests/equivalence/sequence_runs.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::equivalence::mesh_workers_test {
namespace {

using namespace mesh_runs;

constexpr Workers kShapes[] = {{2, 1, 1, 2}, {2, 2, 2, 2}, {4, 1, 2, 2}, {2, 3, 2, 3}};

Optimizer clipped_adam() {
  AdamOptions options{.learning_rate = 0.02};
  options.gradient.global_clipnorm = 0.5;
  return Adam(options);
}

TEST(MeshOverWorkers, LearnsAsOneDevice) {
  for (const std::size_t which : {3, 4, 5}) {
    const Net net = nets()[which];
    const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), net, clipped_adam());
    for (const Workers& shape : kShapes) {
      SCOPED_TRACE(c10::str(net.name, " on ", shape.workers, " workers, ", mesh_of(shape).to_string()));
      with_mesh(shape, net.layout, [&](const MultiWorkerMeshStrategy& strategy) {
        expect_like(under(strategy, net, clipped_adam()), wanted);
      });
    }
  }
}

// The workers are threads, which share LibTorch's generator: every run begins with the same values.
TEST(MeshOverWorkers, WordsAndPositionsInPartsLearnAsOnOneDevice) {
  const models::DecoderOptions options = sequence_runs::of_even_words();
  const NamedTensors values = sequence_runs::small_decoder(options).weights();
  const sequence_runs::Net net{"decoder", [&] {
                                 Model model = sequence_runs::small_decoder(options);
                                 model.set_weights(values);
                                 return model;
                               }};
  const Outcome wanted = sequence_runs::under(OneDeviceStrategy("/CPU:0"), net);
  for (const Workers& shape : {Workers{2, 1, 1, 2}, Workers{4, 1, 2, 2}}) {
    SCOPED_TRACE(mesh_of(shape).to_string());
    with_mesh_of_workers(
        shape.workers, mesh_of(shape),
        [&](int /*rank*/) {
          return MeshOptions{.layout = layouts::transformer(options, "model", /*cuts_vocabulary=*/true),
                             .sequence_parallel = true,
                             .exchange = {.threads_per_replica = 1}};
        },
        [&](const MultiWorkerMeshStrategy& strategy) { expect_like(sequence_runs::under(strategy, net), wanted); });
  }
}

// Only the chief's program says the seed and has values to begin with.
TEST(MeshOverWorkers, DropsOutAsMirroredReplicasDo) {
  Net net = nets()[5];
  net.layers[1] = MultiHeadAttention({.num_heads = 6, .key_dim = 2, .dropout = 0.2});
  net.layers.insert(net.layers.begin() + 2, Dropout(0.3));
  const MirroredStrategy mirrored({.devices = cpu_devices(2)});
  mirrored.set_seed(5);
  const Outcome wanted = under(mirrored, net, clipped_adam());
  with_mesh({4, 1, 2, 2}, net.layout, [&](const MultiWorkerMeshStrategy& strategy) {
    strategy.set_seed(5);
    expect_like(under(strategy, net, clipped_adam()), wanted);
  });
}

// The chief writes whole tensors, which a run under another strategy, and on another mesh, goes on with.
TEST(MeshOverWorkers, ABackupGoesOnUnderOtherStrategies) {
  const Net net = nets()[3];
  const auto run = [&](const Strategy& strategy, int64_t epochs, const std::filesystem::path& folder) {
    const auto scope = strategy.scope();
    Sequential model = made(net, clipped_adam());
    (void)model.fit(batches(net), {.epochs = epochs,
                                   .callbacks = {BackupAndRestore({.directory = folder, .delete_checkpoint = false})},
                                   .verbose = Verbose::kSilent});
    return model.weights();
  };
  const testing::TemporaryFolder folder;
  const auto path = [&](const char* name) { return folder.path() / name; };
  const MirroredStrategy mirrored({.devices = cpu_devices(2)});
  const NamedTensors wanted = run(mirrored, kEpochs, path("wanted"));
  run(mirrored, kEpochs / 2, path("whole"));
  for (const Workers& shape : {Workers{2, 1, 1, 2}, Workers{2, 2, 2, 2}}) {
    SCOPED_TRACE(c10::str(shape.workers, " workers, ", mesh_of(shape).to_string()));
    const auto parts = path("parts") / std::to_string(shape.devices);
    const auto from_whole = path("from_whole") / std::to_string(shape.devices);
    std::filesystem::create_directories(from_whole.parent_path());
    std::filesystem::copy(path("whole"), from_whole, std::filesystem::copy_options::recursive);
    with_mesh(shape, net.layout, [&](const MultiWorkerMeshStrategy& strategy) {
      run(strategy, kEpochs / 2, parts);
      expect_same(run(strategy, kEpochs, from_whole), wanted);
    });
    const auto again = path("again") / std::to_string(shape.devices);
    std::filesystem::create_directories(again.parent_path());
    std::filesystem::copy(parts, again, std::filesystem::copy_options::recursive);
    expect_same(run(mirrored, kEpochs, again), wanted);
    with_mesh(shape, net.layout, [&](const MultiWorkerMeshStrategy& strategy) {
      expect_same(run(strategy, kEpochs, parts), wanted);  // with its own state, where it was left
    });
  }
}

TEST(MeshOverWorkers, WeightsOfAFileAreTheChiefs) {
  const Net net = nets()[3];
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "net.safetensors";
  Sequential whole = made(net, clipped_adam());
  whole.save_weights(file);
  const NamedTensors wanted = whole.weights();
  for (const Workers& shape : {Workers{2, 1, 1, 2}, Workers{2, 2, 2, 2}}) {
    with_mesh(shape, net.layout, [&](const MultiWorkerMeshStrategy& strategy) {
      const auto scope = strategy.scope();
      Sequential model = made(net, clipped_adam());
      NamedTensors other = model.weights();
      for (auto& [name, value] : other) value = value + 1.0;
      model.set_weights(other);
      // The other workers have no such file.
      model.load_weights(strategy.worker_rank() == 0 ? file : folder.path() / "absent");
      expect_same(model.weights(), wanted);
    });
  }
}

template <typename Kind>
void expect_refused(const std::string& part, const std::function<void()>& fn) {
  const std::string message = testing::error_of<Kind>(fn);
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(MeshOverWorkers, WorkersThatDifferAreNamed) {
  const LayoutMap layout = nets()[3].layout;
  const auto none = [](const MultiWorkerMeshStrategy& /*strategy*/) {};
  expect_refused<InvalidArgument>("the workers differ in layout: worker 0 has \"dense", [&] {
    with_mesh(
        {2, 1, 1, 2},
        [&](int rank) {
          return rank == 0 ? layout : LayoutMap{{"dense.weight", {"model", ""}}};
        },
        none);
  });
  expect_refused<InvalidArgument>("worker 1 takes share 0 of the batch with another worker, and others without it",
                                  [&] {
                                    with_mesh({3, 2, 2, 3}, layout, none);
                                  });
  expect_refused<InvalidArgument>("the MultiWorker strategies those of a cluster", [&] {
    MeshStrategy(mesh_of({2, 1, 1, 2}), {.layout = layout});
  });
  expect_refused<InvalidArgument>("has no device of this process", [&] {
    MultiWorkerMeshStrategy(mesh_of({2, 1, 1, 2}), {.layout = layout});
  });
}

// Workers of one line that read other examples would learn nonsense.
TEST(MeshOverWorkers, OtherExamplesOnALineAreNamed) {
  const Net net = nets()[3];
  expect_refused<FailedPrecondition>("have read 4 examples and 4 examples, of other values", [&] {
    with_mesh({2, 1, 1, 2}, net.layout, [&](const MultiWorkerMeshStrategy& strategy) {
      const torch::Tensor x = torch::full({8, 6}, static_cast<double>(strategy.worker_rank()), torch::kDouble);
      const auto input = strategy.distribute(Dataset::from_tensor_slices(x).batch(4));
      input.iterator().next();
    });
  });
}

}  // namespace
}  // namespace cohort::equivalence::mesh_workers_test
