// Checkpoints that each worker writes a part of: whichever way the states were shared when one was saved, they are read
// in every other way, and by one device.
#include "base/access.h"
#include "checkpoint/reader.h"
#include "checkpoint/wholes_on_chief.h"
#include "cohort/train/more_callbacks.h"
#include "strategy/core.h"
#include "tests/equivalence/mesh_workers.h"
#include "tests/equivalence/pipeline_workers.h"
#include "tests/equivalence/weights_file.h"
#include "tests/support/files.h"

namespace cohort::equivalence::sharded_checkpoints_test {
namespace {

using namespace mesh_runs;

using OnWorker = std::function<void(const Strategy& strategy)>;

// A way in which workers share a model.
struct Way {
  std::string name;
  int workers;
  std::function<void(const OnWorker&)> run;
  bool spreads = true;  // whether every worker writes about as much
};

Way stage(int stage, int workers, int replicas) {
  return {c10::str("stage ", stage, ", ", workers, " x ", replicas), workers, [=](const OnWorker& fn) {
            testing::with_workers(
                {.workers = workers,
                 .replicas = replicas,
                 .sharding = {.stage = stage, .min_unit_bytes = stage == 3 ? 0 : ShardingOptions().min_unit_bytes}},
                fn);
          }};
}

Way mesh(const Workers& shape) {
  return {mesh_of(shape).to_string(), shape.workers,
          [=](const OnWorker& fn) { with_mesh(shape, nets()[3].layout, fn); }};
}

// The axis model lies within a worker, or across two.
Way sharded_mesh(const Workers& shape, int stage) {
  return {c10::str(mesh_of(shape).to_string(), ", stage ", stage), shape.workers,
          [=](const OnWorker& fn) { with_sharded_mesh(shape, nets()[3].layout, stage, fn); }};
}

// Each worker has a stage, of parameters in two parts.
Way stages_of_parts(int workers, int batch) {
  return {c10::str("stages of parts, batch ", batch), workers,
          [=](const OnWorker& fn) {
            const PipelineOptions options =
                pipeline_workers::stages_of_parts(workers, batch, Schedule1F1B{.microbatches = 3});
            pipeline_workers::with_stages(
                workers, [&](int /*rank*/) { return options; }, fn);
          },
          /*spreads=*/false};
}

std::vector<Way> ways() {
  return {stage(0, 2, 1),
          stage(1, 2, 1),
          stage(2, 3, 1),
          stage(3, 2, 2),
          mesh({2, 1, 1, 2}),
          mesh({2, 2, 2, 2}),
          sharded_mesh({2, 2, 2, 2}, 1),
          sharded_mesh({2, 2, 2, 2}, 3),
          sharded_mesh({4, 1, 2, 2}, 3),
          sharded_mesh({4, 1, 2, 2}, 2),
          stages_of_parts(2, 1),
          stages_of_parts(4, 2)};
}

Optimizer adam() {
  AdamOptions options{.learning_rate = 0.02};
  options.gradient.global_clipnorm = 0.5;
  return Adam(options);
}

// Trains up to an epoch, from where the newest backup is.
Outcome train_to(const Strategy& strategy, int64_t epochs, const std::filesystem::path& folder, bool sharded = true) {
  const auto scope = strategy.scope();
  const Net net = nets()[3];
  Sequential model = made(net, adam());
  (void)model.fit(
      batches(net),
      {.epochs = epochs,
       .callbacks = {BackupAndRestore({.directory = folder, .delete_checkpoint = false, .sharded = sharded})},
       .verbose = Verbose::kSilent});
  Outcome outcome{.weights = model.weights(), .slots = model.optimizer().state()};
  for (auto& [name, tensor] : outcome.weights) tensor = tensor.detach().clone();
  return outcome;
}

void expect_equal(const NamedTensors& got, const NamedTensors& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(torch::equal(got[i].second, wanted[i].second)) << got[i].first;
}

// Every worker writes about as much as the others.
void expect_spread(const std::filesystem::path& folder, int workers) {
  const CheckpointReader reader(folder);
  uint64_t all = 0;
  for (const auto& [name, file] : reader.manifest().files) {
    if (file.kind == ManifestFile::Kind::kTensors) all += file.size;
  }
  for (int rank = 0; rank < workers; ++rank) {
    const std::string shard = c10::str(".shard-", rank, "-of-", workers, ".safetensors");
    const auto& files = reader.manifest().files;
    EXPECT_GT(files.at("model" + shard).size + files.at("optimizer" + shard).size,
              all / static_cast<uint64_t>(workers) / 2);
  }
}

class ShardedCheckpoints : public ::testing::Test {
 protected:
  // Trains in this way half of the epochs, and returns where the backups are.
  std::filesystem::path half(const Way& way) const {
    const auto place = folder_ / "half";
    std::filesystem::remove_all(place);
    way.run([&](const Strategy& strategy) { train_to(strategy, kEpochs / 2, place); });
    return place;
  }
  std::filesystem::path copy_of(const std::filesystem::path& place) {
    auto to = folder_ / std::to_string(++copies_);
    std::filesystem::copy(place, to, std::filesystem::copy_options::recursive);
    return to;
  }

  testing::TemporaryFolder folder_;
  int copies_ = 0;
  const Outcome wanted_ = train_to(OneDeviceStrategy("/CPU:0"), kEpochs, folder_ / "wanted", /*sharded=*/false);
};

TEST_F(ShardedCheckpoints, GoOnWithTheSameBits) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    const auto place = half(way);
    if (way.spreads) expect_spread(place / "backup-10", way.workers);
    const auto undisturbed = folder_ / c10::str("undisturbed-", ++copies_);
    std::vector<Outcome> whole(static_cast<std::size_t>(way.workers));
    way.run([&](const Strategy& strategy) {
      whole[static_cast<std::size_t>(Access::core(strategy)->worker_rank())] = train_to(strategy, kEpochs, undisturbed);
    });
    way.run([&](const Strategy& strategy) {
      const Outcome resumed = train_to(strategy, kEpochs, place);
      const Outcome& same = whole[static_cast<std::size_t>(Access::core(strategy)->worker_rank())];
      expect_equal(resumed.weights, same.weights);
      expect_equal(resumed.slots, same.slots);
      expect_same(resumed.weights, wanted_.weights);
      expect_same(resumed.slots, wanted_.slots);
    });
  }
}

// In the next way of the list, by one device that reads wholes, and by one that reads parts.
TEST_F(ShardedCheckpoints, GoOnInOtherWays) {
  const std::vector<Way> all = ways();
  const auto expect_wanted = [&](const Outcome& got) {
    expect_same(got.weights, wanted_.weights);
    expect_same(got.slots, wanted_.slots);
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(all[i].name);
    const auto place = half(all[i]);
    for (const bool sharded : {false, true}) {
      expect_wanted(train_to(OneDeviceStrategy("/CPU:0"), kEpochs, copy_of(place), sharded));
    }
    const auto next = copy_of(place);
    all[(i + 1) % all.size()].run([&](const Strategy& strategy) { expect_wanted(train_to(strategy, kEpochs, next)); });
  }
}

// For others, in one file, to which each worker sends what it has.
TEST_F(ShardedCheckpoints, OneFileOfWeightsIsThatOfTheWholeModel) {
  std::vector<Way> divided = ways();
  std::erase_if(divided,
                [](const Way& way) { return way.name.starts_with("stage") && !way.name.starts_with("stage 3"); });
  divided.push_back(stage(3, 1, 3));
  for (const Way& way : divided) {
    SCOPED_TRACE(way.name);
    way.run([&](const Strategy& strategy) {
      const auto scope = strategy.scope();
      const Net net = nets()[3];
      Sequential model = made(net, adam());
      (void)model.fit(batches(net), {.epochs = 1, .verbose = Verbose::kSilent});
      expect_whole_file(model, folder_.path());
    });
  }
}

// It has said what it has, and the file is begun.
TEST_F(ShardedCheckpoints, AWorkerThatIsLostLeavesNoFileOfWeights) {
  stage(3, 2, 1).run([&](const Strategy& strategy) {
    const auto scope = strategy.scope();
    const Net net = nets()[3];
    Sequential model = made(net, adam());
    (void)model.fit(batches(net), {.epochs = 1, .verbose = Verbose::kSilent});
    if (Access::core(strategy)->worker_rank() == 1) return static_cast<void>(WholesOnChief(model.module()));
    testing::expect_error<Unavailable>([&] { model.save_weights(folder_ / "lost"); }, "worker 1");
  });
  EXPECT_EQ(testing::names_in(folder_.path()), std::vector<std::string>{"wanted"});
}

// What one device has written whole.
TEST_F(ShardedCheckpoints, ReadPartsOfWholeOnes) {
  const auto place = folder_ / "whole";
  train_to(OneDeviceStrategy("/CPU:0"), kEpochs / 2, place, /*sharded=*/false);
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    const auto own = copy_of(place);
    way.run([&](const Strategy& strategy) {
      const Outcome got = train_to(strategy, kEpochs, own);
      expect_same(got.weights, wanted_.weights);
      expect_same(got.slots, wanted_.slots);
    });
  }
}

}  // namespace
}  // namespace cohort::equivalence::sharded_checkpoints_test
