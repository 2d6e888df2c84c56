// A training of an experiment that goes on at its checkpoint ends with the bits of one that was not interrupted.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/models/experiment.h"
#include "cohort/weights.h"
#include "tests/models/every_key_data.h"
#include "tests/support/files.h"

namespace cohort::resumed_experiments_test {
namespace {

using cohort::testing::TemporaryFolder;

struct Resumed {
  std::string experiment;
  std::string data;
  std::string overrides;
};

NamedTensors trained(const Resumed& test, const std::filesystem::path& data, const std::filesystem::path& folder,
                     int steps) {
  std::vector<std::string> flags = {"train",
                                    "--experiment=" + test.experiment,
                                    "--data_dir=" + data.string(),
                                    "--model_dir=" + folder.string(),
                                    "--batch_size=6",
                                    "--num_replicas=2",
                                    "--mode=train",
                                    "--train_steps=" + std::to_string(steps),
                                    "--params_override=trainer.checkpoint_interval=4," + test.overrides};
  std::vector<char*> argv;
  for (std::string& flag : flags) argv.push_back(flag.data());
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(train_main(static_cast<int>(argv.size()), argv.data()), 0);
  (void)::testing::internal::GetCapturedStdout();
  return load_weights(folder / "model.safetensors").tensors;
}

TEST(ResumedExperiments, EndWithTheSameBits) {
  const TemporaryFolder folder;
  testing::make_writings(folder / "writings");
  testing::make_clicks(folder / "clicks");
  const std::string encoder = "task.model.encoder.bert.", rate = "trainer.optimizer_config.learning_rate.";
  const std::vector<Resumed> tests = {
      {"bert_tiny", "writings",
       encoder + "hidden_size=16," + encoder + "num_layers=1," + encoder + "intermediate_size=16," + encoder +
           "dropout_rate=0.1," + rate +
           "cosine.decay_steps=9,task.train_data.seq_length=13,task.validation_data.seq_length=13"},
      {"dlrm_small", "clicks", "task.model.embedding_dim=4,task.model.bottom_mlp=[4],task.model.top_mlp=[3,1]"}};
  for (const Resumed& test : tests) {
    SCOPED_TRACE(test.experiment);
    const NamedTensors whole = trained(test, folder / test.data, folder / (test.experiment + "_whole"), 9);
    trained(test, folder / test.data, folder / (test.experiment + "_cut"), 4);
    const NamedTensors resumed = trained(test, folder / test.data, folder / (test.experiment + "_cut"), 9);
    ASSERT_EQ(resumed.size(), whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_TRUE(resumed[i].second.equal(whole[i].second)) << whole[i].first;
    }
  }
}

}  // namespace
}  // namespace cohort::resumed_experiments_test
