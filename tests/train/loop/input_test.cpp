// A worker stops the training right before a backup. Several of them agree on it a step later, which a run that goes on
// from that backup makes, too; and the end of the epoch is still to come.
#include "train/loop/input.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <array>
#include <set>

#include "cohort/cohort.h"
#include "tests/support/files.h"
#include "tests/support/workers.h"

namespace cohort::input_test {
namespace {

using testing::TemporaryFolder;
using testing::with_workers;

Dataset batches() {  // five a pass
  const torch::Tensor x = torch::sin(torch::arange(60 * 4, torch::kFloat)).view({60, 4});
  return Dataset::from_tensor_slices(x, (x.sum(1) > 0).to(torch::kLong)).shuffle(30, {.seed = 3}).batch(12);
}

struct Killed : std::exception {};

// Ends the program after the backup of a step: callbacks of a higher turn come later.
class Kill final : public Callback {
 public:
  explicit Kill(int64_t step) : step_(step) {}
  void on_batch_end(const RunInfo& run, const BatchLogs& /*logs*/) override {
    if (run.step == step_) throw Killed();
  }
  int turn() const override { return 3; }

 private:
  int64_t step_;
};

struct Case {
  int64_t stop_at;  // the step
  int64_t steps_per_epoch;
};

struct Result {
  NamedTensors weights;
  int64_t steps = 0;
  std::vector<std::string> ends;  // of epochs, with whether they were validated
};

Result train(const MultiWorkerMirroredStrategy& strategy, const Case& each, const std::filesystem::path& backups,
             int64_t killed_at) {
  strategy.set_seed(5);
  const auto scope = strategy.scope();
  Sequential net{Dense({.units = 4, .kernel_initializer = Initializer::kOnes}), Dropout(0.3), Dense(2)};
  net.compile(
      {.optimizer = Adam({.learning_rate = 0.05}), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
  net.build({4});
  net.set_weights({{"dense_1.weight", torch::cos(torch::arange(8, torch::kFloat)).view({2, 4})}}, /*strict=*/false);
  Result result;
  const bool stops = strategy.worker_rank() == strategy.num_workers() - 1;
  const auto stop = [&](const RunInfo& run, const BatchLogs&) {
    if (stops && run.step == each.stop_at) run.model.stop_training();
  };
  const auto note = [&](const RunInfo& run, Logs& logs) {
    result.ends.push_back(c10::str(run.epoch, " after ", run.step, logs.contains("val_loss") ? ", validated" : ""));
  };
  net.fit(each.steps_per_epoch > 0 ? batches().repeat() : batches(),
          {.epochs = 6,
           .steps_per_epoch = each.steps_per_epoch,
           .validation_data = batches(),
           .callbacks = {std::make_shared<Kill>(killed_at),
                         BackupAndRestore({.directory = backups, .save_freq = 1, .delete_checkpoint = false}),
                         LambdaCallback({.on_epoch_end = note, .on_batch_end = stop})},
           .verbose = Verbose::kSilent});
  result.weights = net.weights();
  result.steps = net.optimizer().iterations();
  return result;
}

class Stopped : public ::testing::TestWithParam<Case> {};

TEST_P(Stopped, ARunThatGoesOnEndsWhereItWouldHave) {
  const Case& each = GetParam();
  for (const int workers : {1, 2}) {
    std::array<Result, 2> whole;
    const TemporaryFolder folder;
    const auto run = [&](const std::string& name, int64_t killed_at, std::array<Result, 2>& results) {
      with_workers({.workers = workers}, [&](const MultiWorkerMirroredStrategy& strategy) {
        const auto backups = folder / (strategy.should_checkpoint() ? name : "of nobody");
        results.at(static_cast<std::size_t>(strategy.worker_rank())) = train(strategy, each, backups, killed_at);
      });
    };
    run("whole", -1, whole);
    // The run is cut after the backup of the step before, of that step, and of the one in which the others hear of it.
    for (const int64_t cut : std::set{each.stop_at - 1, each.stop_at, whole[0].steps}) {
      SCOPED_TRACE(::testing::Message() << workers << " workers, killed after step " << cut);
      std::array<Result, 2> gone_on;
      const std::string name = std::to_string(cut);
      EXPECT_THROW(run(name, cut, gone_on), Killed);
      run(name, -1, gone_on);
      for (std::size_t i = 0; i < static_cast<std::size_t>(workers); ++i) {
        EXPECT_EQ(gone_on.at(i).steps, whole.at(i).steps);
        ASSERT_FALSE(gone_on.at(i).ends.empty()) << "the end of the epoch was left out";
        EXPECT_EQ(gone_on.at(i).ends.back(), whole.at(i).ends.back());
        for (std::size_t p = 0; p < whole.at(i).weights.size(); ++p) {
          EXPECT_TRUE(torch::equal(gone_on.at(i).weights[p].second, whole.at(i).weights[p].second));
        }
      }
    }
  }
}

// The stops are in the middle of an epoch, in the last step but one, in the last one; the same where epochs are counted
// in steps.
INSTANTIATE_TEST_SUITE_P(All, Stopped,
                         ::testing::Values(Case{7, 0}, Case{9, 0}, Case{10, 0}, Case{9, 7}, Case{13, 7}, Case{14, 7}),
                         [](const auto& info) {
                           return c10::str("step", info.param.stop_at, "of", info.param.steps_per_epoch);
                         });

}  // namespace
}  // namespace cohort::input_test
