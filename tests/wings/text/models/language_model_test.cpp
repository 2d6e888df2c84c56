// Language modelling as a task: where its text and its first weights come from.
#include "cohort/models/language_model.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/strategy.h"
#include "cohort/weights.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::language_model_test {
namespace {

using cohort::testing::expect_error;
using cohort::testing::TemporaryFolder;
using cohort::testing::write_file;

LanguageModelTask small() {
  LanguageModelTask task;
  task.seq_length = 6;
  task.train_data.global_batch_size = 4;
  task.validation_data.global_batch_size = 3;
  task.model.hidden_size = 8;
  task.model.intermediate_size = 12;
  task.model.num_hidden_layers = 2;
  task.model.num_attention_heads = 2;
  return task;
}

constexpr const char* kConfigOfSmall =
    R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2,
        "num_attention_heads": 2, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})";

Example first_of(const Dataset& data) {
  return data.iterator().next().value();
}

TEST(LanguageModel, TrainsOnAPartAndValidatesOnTheRest) {
  const TemporaryFolder folder;
  write_file(folder / "text", std::string(601, 'a'));
  LanguageModelTask task = small();
  task.train_data.input_path = (folder / "text").string();
  const TaskData data = task.build_inputs({}, /*training=*/true);
  EXPECT_EQ(data.steps_per_epoch, 22);  // 90 of 100 examples
  EXPECT_EQ(data.validation->cardinality(), 4);
  const Example batch = first_of(*data.train);
  const Example zeros = task.example_batch();
  EXPECT_EQ(batch.x.sizes(), zeros.x.sizes());
  EXPECT_EQ(batch.x.scalar_type(), zeros.x.scalar_type());
  EXPECT_EQ(batch.y.scalar_type(), zeros.y.scalar_type());
  EXPECT_TRUE(batch.y.eq('a').all().item<bool>());
}

TEST(LanguageModel, EvaluatesWithoutTrainingData) {
  const TemporaryFolder folder;
  write_file(folder / "text", "abcdefghijklm");
  LanguageModelTask task = small();
  task.validation_data.input_path = (folder / "text").string();
  EXPECT_EQ(first_of(*task.build_inputs({}, /*training=*/false).validation).x.sizes(), (std::vector<int64_t>{2, 6}));
  expect_error<InvalidArgument>([&] { task.build_inputs({}, /*training=*/true); }, "there is no text: --data_dir");
  task.train_data.input_path = task.validation_data.input_path;
  expect_error<InvalidArgument>([&] { task.build_inputs({}, /*training=*/true); },
                                "has 2 examples of 6 bytes to train with, fewer than a batch, 4");
}

// A folder of Hugging Face's, whose weights lie in two files.
TEST(LanguageModel, StartsFromAFolderOfHuggingFaces) {
  const TemporaryFolder folder;
  LanguageModelTask task = small();
  torch::manual_seed(1);
  const NamedTensors weights = task.build_model().weights();
  const auto half = weights.begin() + static_cast<std::ptrdiff_t>(weights.size() / 2);
  save_weights(folder / "model-1.safetensors", NamedTensors(weights.begin(), half));
  save_weights(folder / "model-2.safetensors", NamedTensors(half, weights.end()));
  write_file(folder / "config.json", kConfigOfSmall);
  std::string index;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    index += c10::str(i == 0 ? "" : ", ", '"', weights[i].first, "\": \"model-", i < weights.size() / 2 ? 1 : 2,
                      ".safetensors\"");
  }
  write_file(folder / "model.safetensors.index.json", "{\"metadata\": {}, \"weight_map\": {" + index + "}}");
  for (const int64_t rank : {0, 2}) {
    LanguageModelTask other = small();
    other.init_checkpoint = folder.path().string();
    other.model.lora.rank = rank;
    torch::manual_seed(2);
    Model model = other.build_model();
    other.initialize(model);
    std::map<std::string, torch::Tensor> got;
    for (const auto& [name, tensor] : model.weights()) got[name] = tensor;
    for (const auto& [name, tensor] : weights) EXPECT_TRUE(got.at(name).equal(tensor)) << name;
    EXPECT_EQ(got.size(), weights.size() + (rank > 0 ? 16 : 0));
  }
}

TEST(LanguageModel, SaysWhatIsMissingInTheWeightsToStartFrom) {
  const TemporaryFolder folder;
  LanguageModelTask task = small();
  task.init_checkpoint = (folder / "some.safetensors").string();
  NamedTensors weights = small().build_model().weights();
  weights.pop_back();
  save_weights(folder / "some.safetensors", weights);
  const auto start = [&] {
    Model model = task.build_model();
    task.initialize(model);
  };
  expect_error<NotFound>(start, "norm.weight");
  task.model.lora.rank = 2;
  expect_error<NotFound>(start, "some.safetensors has no model.");

  task.init_checkpoint = folder.path().string();
  write_file(folder / "config.json", kConfigOfSmall);
  for (const char* index : {"{", "{}", R"({"weight_map": {"a": "../b.safetensors"}})"}) {
    write_file(folder / "model.safetensors.index.json", index);
    expect_error<DataLoss>(start, "index.json: wanted an object \"weight_map\"");
  }
}

}  // namespace
}  // namespace cohort::language_model_test
