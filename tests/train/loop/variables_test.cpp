// The variables of a strategy in the checkpoints of Model and Controller.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/cohort.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::variables_in_checkpoints_test {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;

Dataset batches() {  // five a pass
  const torch::Tensor x = torch::sin(torch::arange(60 * 4, torch::kFloat)).view({60, 4});
  return Dataset::from_tensor_slices(x, (x.sum(1) > 0).to(torch::kLong)).batch(12);
}

struct Interrupted : std::exception {};

// A program whose callbacks keep counts in variables of the strategy: of the steps, and of what each replica has seen.
struct Program {
  explicit Program(int replicas = 2)
      : strategy({.devices = cpu_devices(replicas)}),
        steps(strategy.variable(torch::zeros({}, torch::kLong), {.name = "steps"})),
        seen(strategy.variable(torch::zeros({2}), options_of_seen())) {
    strategy.set_seed(5);
    const auto scope = strategy.scope();
    model.emplace(Sequential{Dense(8), Dropout(0.3), Dense(2)});
    model->compile(
        {.optimizer = SGD({.learning_rate = 0.1}), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
    model->build({4});
  }

  static VariableOptions options_of_seen() {
    return {
        .name = "seen", .synchronization = VariableSynchronization::kOnRead, .aggregation = VariableAggregation::kSum};
  }

  void count() const {
    steps.assign_add(torch::ones({}, torch::kLong));
    strategy.run([&](Replica& replica) { seen.assign_add(torch::full({2}, 1.0 + replica.id())); });
  }

  void fit(const std::filesystem::path& directory, int64_t interrupt_at = -1) {
    const auto scope = strategy.scope();
    model->fit(batches(),
               {.epochs = 3,
                .callbacks = {LambdaCallback({.on_batch_end =
                                                  [&](const RunInfo& info, const BatchLogs&) {
                                                    count();
                                                    if (info.step == interrupt_at) throw Interrupted();
                                                  }}),
                              BackupAndRestore({.directory = directory, .save_freq = 2, .delete_checkpoint = false})},
                .verbose = Verbose::kSilent});
  }

  MirroredStrategy strategy;
  Variable steps;
  Variable seen;
  std::optional<Sequential> model;
};

TEST(VariablesInCheckpoints, FitGoesOnWithThem) {
  const TemporaryFolder folder;
  Program whole;
  whole.fit(folder / "whole");
  EXPECT_EQ(whole.steps.read().item<int64_t>(), 15);
  EXPECT_EQ(whole.seen.read()[0].item<float>(), 15 * (1.0F + 2.0F));
  {
    Program cut;
    EXPECT_THROW(cut.fit(folder / "cut", 7), Interrupted);
  }
  Program rest;
  rest.fit(folder / "cut");
  EXPECT_EQ(rest.steps.read().item<int64_t>(), 15);
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_TRUE(torch::equal(rest.seen.components()[r], whole.seen.components()[r])) << "replica " << r;
  }
}

TEST(VariablesInCheckpoints, OtherReplicasGetTheWholeOfASum) {
  const TemporaryFolder folder;
  Program(2).fit(folder / "run");
  Program three(3);
  three.fit(folder / "run");
  // The last checkpoint is that of step 14, in the third epoch, which is begun anew: five steps more.
  EXPECT_EQ(three.steps.read().item<int64_t>(), 14 + 5);
  EXPECT_FLOAT_EQ(three.seen.read()[0].item<float>(), 14 * (1.0F + 2.0F) + 5 * (1.0F + 2.0F + 3.0F));
}

TEST(VariablesInCheckpoints, NamesHaveToTellThemApart) {
  const TemporaryFolder folder;
  const auto fit_with = [&](const VariableOptions& options) {
    return [&folder, options] {
      Program program;
      const Variable more = program.strategy.variable(torch::zeros({}), options);
      program.fit(folder / "run");
    };
  };
  expect_error<InvalidArgument>(fit_with({.name = "steps"}), "two variables of the strategy have the name \"steps\"");
  expect_error<InvalidArgument>(fit_with({.name = ""}), "a variable of the strategy has an empty name");
}

TEST(VariablesInCheckpoints, OneThatIsNotInItIsNamed) {
  const TemporaryFolder folder;
  Program().fit(folder / "run", -1);
  Program more;
  const Variable late = more.strategy.variable(torch::zeros({}), {.name = "late"});
  expect_error<NotFound>([&] { more.fit(folder / "run"); }, "there is no variable \"late\" in it");
}

TEST(VariablesInCheckpoints, AVariableThatNobodyHasAnyMoreIsForgotten) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const Variable kept = strategy.variable(torch::zeros({}), {.name = "kept"});
  (void)strategy.variable(torch::zeros({}), {.name = "gone"});
  ASSERT_EQ(strategy.variables().size(), 1U);
  EXPECT_EQ(strategy.variables()[0].name(), "kept");
}

// A controller's run, in two halves or in one; the counts afterwards.
std::pair<int64_t, torch::Tensor> controlled(const std::filesystem::path& directory, const std::vector<int64_t>& ends) {
  std::pair<int64_t, torch::Tensor> counts;
  for (const int64_t end : ends) {
    Program program;
    const auto scope = program.strategy.scope();
    const auto trainer = std::make_shared<ModelTrainer>(
        *program.model, ModelTrainerOptions{.train = batches().repeat(), .verbose = Verbose::kSilent});
    Controller controller({.trainer = trainer,
                           .train_actions = {[&](const ActionInfo&) { program.count(); }},
                           .steps_per_loop = 2,
                           .checkpoint_dir = directory,
                           .checkpoint_interval = 2});
    controller.train(end);
    counts = {program.steps.read().item<int64_t>(), program.seen.read()};
  }
  return counts;
}

TEST(VariablesInCheckpoints, AControllerGoesOnWithThem) {
  const TemporaryFolder folder;
  const auto whole = controlled(folder / "whole", {8});
  const auto halves = controlled(folder / "halves", {4, 8});
  EXPECT_GT(whole.first, 0);
  EXPECT_EQ(halves.first, whole.first);
  EXPECT_TRUE(torch::equal(halves.second, whole.second));
}

}  // namespace
}  // namespace cohort::variables_in_checkpoints_test
