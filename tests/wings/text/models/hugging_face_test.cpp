// Folders of Hugging Face's: the model that config.json describes, and what transformers computes with it. The answers
// of transformers lie in the folder that COHORT_FACTS names, by default beside the repository.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cohort/error.h"
#include "cohort/models/language_model.h"
#include "cohort/models/masked_language_model.h"
#include "cohort/models/zoo.h"
#include "models/tasks/initial_weights.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "wings/text/models/rotations.h"

namespace cohort::models::hugging_face_test {
namespace {

using cohort::testing::error_of;
using cohort::testing::expect_error;
using cohort::testing::read_file;
using cohort::testing::TemporaryFolder;
using cohort::testing::write_file;
using nlohmann::json;

constexpr double kClose = 1e-3;  // of logits, and relative of norms

std::filesystem::path facts_folder() {
  const char* folder = std::getenv("COHORT_FACTS");
  return std::filesystem::path(folder ? folder : "../shared/facts") / "text";
}

class HuggingFaceFacts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::filesystem::is_directory(facts_folder())) return;
    GTEST_SKIP() << "there is no folder " << facts_folder() << " (COHORT_FACTS names another one)";
  }
};

torch::Tensor numbers_of(const json& rows) {
  std::vector<torch::Tensor> all;
  for (const json& row : rows) all.push_back(torch::tensor(row.get<std::vector<int64_t>>()));
  return torch::stack(all);
}

void check_logits(const torch::Tensor& logits, const json& wanted) {
  for (std::size_t i = 0; i < wanted["positions"].size(); ++i) {
    const torch::Tensor at = logits[wanted["positions"][i][0].get<int64_t>()][wanted["positions"][i][1].get<int64_t>()];
    const torch::Tensor first = torch::tensor(wanted["logits_first_8"][i].get<std::vector<float>>());
    EXPECT_LT((at.slice(0, 0, 8) - first).abs().max().item<double>(), kClose) << "position " << i;
    EXPECT_EQ(at.argmax().item<int64_t>(), wanted["argmax"][i].get<int64_t>()) << "position " << i;
  }
}

// Checks the loss and the gradients of everything that learns.
void check_loss(const torch::Tensor& logits, const torch::Tensor& labels, const torch::nn::Module& module,
                const json& wanted) {
  namespace F = torch::nn::functional;
  const torch::Tensor loss =
      F::cross_entropy(logits.flatten(0, 1), labels.flatten(), F::CrossEntropyFuncOptions().ignore_index(-100));
  EXPECT_NEAR(loss.item<double>(), wanted["loss"].get<double>(), kClose);
  loss.backward();
  const auto parameters = module.named_parameters();
  EXPECT_EQ(parameters.size(), wanted["gradient_norms"].size());
  for (const auto& [name, norm] : wanted["gradient_norms"].items()) {
    ASSERT_TRUE(parameters.contains(name)) << name;
    // Biases of keys have no gradient: what there is of it is rounding.
    EXPECT_NEAR(parameters[name].grad().norm().item<double>(), norm.get<double>(), kClose * norm.get<double>() + 1e-6)
        << name;
  }
}

TEST_F(HuggingFaceFacts, DecodersComputeWhatTransformersDoes) {
  for (const char* name : {"01_llama", "04_llama_rope_llama3", "08_qwen2_sharded", "19_llama_v5_form"}) {
    SCOPED_TRACE(name);
    const auto folder = facts_folder() / "models" / name;
    const json wanted = json::parse(read_file(folder / "expected.json"));
    Model model([options = decoder_options(folder)] { return decoder(options); }, "decoder");
    start_from(folder, std::nullopt, model);
    const auto module = std::dynamic_pointer_cast<LayerModule>(model.module().copies().front());
    const torch::Tensor logits = module->forward(numbers_of(wanted["input_ids"]));
    check_logits(logits, wanted);
    check_loss(logits.slice(1, 0, -1), numbers_of(wanted["labels"]).slice(1, 1), *module, wanted);
  }
}

TEST_F(HuggingFaceFacts, BertComputesWhatTransformersDoes) {
  const auto folder = facts_folder() / "models" / "13_bert_mlm";
  const json wanted = json::parse(read_file(folder / "expected.json"));
  BertOptions options = bert_options(folder);
  options.next_sentence = false;
  Model model([options] { return bert(options); }, "bert");
  start_from_bert(folder, model);
  const auto module = std::dynamic_pointer_cast<NamedModule>(model.module().copies().front());
  module->eval();  // without dropout
  const torch::Tensor words = numbers_of(wanted["input_ids"]);
  const torch::Tensor logits = module
                                   ->forward({{"input_word_ids", words},
                                              {"input_mask", numbers_of(wanted["attention_mask"])},
                                              {"input_type_ids", numbers_of(wanted["token_type_ids"])},
                                              {"masked_lm_positions", torch::arange(words.size(1)).expand_as(words)}})
                                   .front()
                                   .second;
  check_logits(logits, wanted);
  check_loss(logits, numbers_of(wanted["labels"]), *module, wanted);
}

TEST_F(HuggingFaceFacts, RefusesFoldersThatAreDamagedOrOfOtherModels) {
  expect_error<Unimplemented>([] { decoder_options(facts_folder() / "models" / "10_gpt2"); },
                              "config.json: model_type is \"gpt2\", wanted llama, mistral or qwen2");
  int refused = 0;
  for (const json& each : json::parse(read_file(facts_folder() / "fail" / "expected.json"))) {
    if (each["load"] != "model") continue;
    const auto folder = facts_folder() / "fail" / each["folder"].get<std::string>();
    const std::string message = error_of<Error>([&] {
      Model model([options = decoder_options(folder)] { return decoder(options); }, "decoder");
      start_from(folder, std::nullopt, model);
    });
    for (const json& part : each["error_names"]) {
      EXPECT_NE(message.find(part.get<std::string>()), std::string::npos) << folder << ": " << message;
    }
    ++refused;
  }
  EXPECT_EQ(refused, 3);
}

json llama() {
  return {
      {"model_type", "llama"},  {"vocab_size", 256},        {"hidden_size", 16},    {"intermediate_size", 24},
      {"num_hidden_layers", 2}, {"num_attention_heads", 4}, {"rms_norm_eps", 1e-6}, {"max_position_embeddings", 64}};
}

DecoderOptions options_of(json config, const json& changes) {
  const TemporaryFolder folder;
  config.merge_patch(changes);
  write_file(folder / "config.json", config.dump());
  return decoder_options(folder.path());
}

TEST(HuggingFace, ReadsTheKeysOfADecoder) {
  const DecoderOptions plain = options_of(llama(), json::object());
  EXPECT_EQ(plain.num_kv_heads, 4);
  EXPECT_EQ(plain.head_dim, 4);
  EXPECT_EQ(plain.norm_epsilon, 1e-6);
  EXPECT_FALSE(plain.tie_word_embeddings);
  EXPECT_FALSE(plain.qkv_bias || plain.attention_bias || plain.mlp_bias);
  EXPECT_EQ(plain.rope_theta, 1e4);
  EXPECT_EQ(plain.rope_scaling.type, "");

  const DecoderOptions other = options_of(llama(), {{"num_key_value_heads", 2},
                                                    {"head_dim", 6},
                                                    {"attention_bias", true},
                                                    {"mlp_bias", true},
                                                    {"tie_word_embeddings", true},
                                                    {"rope_theta", 5e5},
                                                    {"rope_scaling", {{"type", "dynamic"}, {"factor", 2.5}}}});
  EXPECT_EQ(other.num_kv_heads, 2);
  EXPECT_EQ(other.head_dim, 6);
  EXPECT_TRUE(other.attention_bias && other.mlp_bias && other.tie_word_embeddings);
  EXPECT_EQ(other.rope_theta, 5e5);
  EXPECT_EQ(other.rope_scaling.type, "dynamic");
  EXPECT_EQ(other.rope_scaling.factor, 2.5);
  EXPECT_EQ(other.rope_scaling.original_max_positions, 64);

  // The form of transformers 5, which has rope_theta among the others.
  const DecoderOptions newer =
      options_of(llama(), {{"model_type", "qwen2"},
                           {"num_key_value_heads", 4},
                           {"use_sliding_window", false},
                           {"sliding_window", 8},
                           {"rope_parameters", {{"rope_type", "linear"}, {"rope_theta", 7e5}, {"factor", 4}}}});
  EXPECT_TRUE(newer.qkv_bias);
  EXPECT_EQ(newer.rope_theta, 7e5);
  EXPECT_EQ(newer.rope_scaling.type, "linear");
  EXPECT_EQ(newer.rope_scaling.factor, 4.0);
}

TEST(HuggingFace, NamesTheKeyThatItCannotFollow) {
  for (const auto& [changes, message] : std::vector<std::pair<json, std::string>>{
           {{{"model_type", "gemma"}}, "model_type is \"gemma\", wanted llama, mistral or qwen2"},
           {{{"hidden_act", "gelu"}}, "hidden_act is \"gelu\", wanted silu"},
           {{{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}}, "rope_scaling.rope_type is \"yarn\""},
           {{{"rope_scaling", {{"type", "longrope"}}}}, "rope_scaling.type is \"longrope\""},
           {{{"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}, {"attention_factor", 2.0}}}},
            "rope_scaling.attention_factor is 2.0"},
           {{{"partial_rotary_factor", 0.5}}, "partial_rotary_factor is 0.5"},
           {{{"sliding_window", 8}}, "sliding_window is 8"},
           {{{"model_type", "mistral"}, {"num_key_value_heads", 4}}, "sliding_window is missing"},
           {{{"attention_dropout", 0.1}}, "attention_dropout is 0.1"},
           {{{"layer_types", {"full_attention", "sliding_attention"}}}, "layer_types is"},
           {{{"quantization_config", {{"bits", 4}}}}, "quantization_config is"}}) {
    expect_error<Unimplemented>([&, &changed = changes] { options_of(llama(), changed); }, message);
  }
  for (const auto& [changes, message] : std::vector<std::pair<json, std::string>>{
           {{{"vocab_size", -1}}, "vocab_size is -1, wanted a whole number of 1 or more"},
           {{{"rope_theta", "big"}}, "rope_theta is \"big\", wanted a number"},
           {{{"rope_scaling", 4}}, "rope_scaling is 4, wanted an object"},
           {{{"num_key_value_heads", 3}}, "num_kv_heads is 3, wanted a divisor of num_heads, 4"}}) {
    expect_error<InvalidArgument>([&, &changed = changes] { options_of(llama(), changed); }, message);
  }
  expect_error<NotFound>([] { options_of(llama(), {{"hidden_size", nullptr}}); }, "there is no hidden_size");

  const TemporaryFolder folder;
  expect_error<NotFound>([&] { decoder_options(folder.path()); }, "config.json: there is no such file");
  write_file(folder / "config.json", R"({"rope_theta": 1, "rope_theta": 2})");
  expect_error<DataLoss>([&] { decoder_options(folder.path()); }, "the key rope_theta is there twice");
  write_file(folder / "config.json", "{");
  expect_error<DataLoss>([&] { bert_options(folder.path()); }, "config.json: wanted an object of JSON");
  write_file(folder / "config.json", R"({"model_type": "bert", "hidden_act": "gelu_new"})");
  expect_error<Unimplemented>([&] { bert_options(folder.path()); }, "hidden_act is \"gelu_new\"");
}

// The angles of transformers' modeling_rope_utils, in double.
std::vector<double> angles_of(int64_t steps, const DecoderOptions& options) {
  const RopeScaling& scaling = options.rope_scaling;
  const auto size = static_cast<double>(options.head_dim);
  const auto trained = static_cast<double>(scaling.original_max_positions);
  double theta = options.rope_theta;
  if (scaling.type == "dynamic") {
    const double length = std::max(static_cast<double>(steps), trained);
    theta *= std::pow(scaling.factor * length / trained - (scaling.factor - 1.0), size / (size - 2.0));
  }
  std::vector<double> angles;
  for (int64_t i = 0; i < options.head_dim; i += 2) {
    double angle = 1.0 / std::pow(theta, static_cast<double>(i) / size);
    const double length = 2.0 * M_PI / angle;
    if (scaling.type == "linear") angle /= scaling.factor;
    if (scaling.type == "llama3" && length > trained / scaling.low_freq_factor) {
      angle /= scaling.factor;
    } else if (scaling.type == "llama3" && length >= trained / scaling.high_freq_factor) {
      const double smooth =
          (trained / length - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
      angle = (1.0 - smooth) * angle / scaling.factor + smooth * angle;
    }
    angles.push_back(angle);
  }
  return angles;
}

TEST(HuggingFace, TurnsPositionsAsTheScalingSays) {
  for (const char* type : {"", "linear", "dynamic", "llama3"}) {
    for (const int64_t steps : {5, 40}) {  // fewer and more than those of the training
      DecoderOptions options{.head_dim = 16, .rope_theta = 500.0};
      options.rope_scaling = {.type = type, .factor = 4.0, .original_max_positions = 24};
      const Rotations rotations(steps, options, torch::kDouble);
      const std::vector<double> angles = angles_of(steps, options);
      const torch::Tensor turned = rotations(torch::ones({1, 1, steps, 16}, torch::kDouble));
      for (std::size_t i = 0; i < angles.size(); ++i) {
        const double angle = angles[i] * static_cast<double>(steps - 1);
        const auto at = [&](std::size_t place) { return turned[0][0][steps - 1][place].item<double>(); };
        EXPECT_NEAR(at(i), std::cos(angle) - std::sin(angle), 1e-9) << type << " " << steps << " " << i;
        EXPECT_NEAR(at(i + 8), std::cos(angle) + std::sin(angle), 1e-9) << type << " " << steps << " " << i;
      }
    }
  }
}

// A folder whose weights come from a model of these options.
void write_folder(const std::filesystem::path& folder, const json& config) {
  write_file(folder / "config.json", config.dump());
  torch::manual_seed(1);
  Model([options = decoder_options(folder)] { return decoder(options); }, "decoder")
      .save_weights(folder / "model.safetensors");
}

TEST(HuggingFace, SetsTheKeysOfATaskThatNobodyHasSet) {
  const TemporaryFolder folder;
  json config = llama();
  config.merge_patch({{"head_dim", 6}, {"rope_theta", 5e5}, {"mlp_bias", true}});
  write_folder(folder.path(), config);
  const auto complete = [&](LanguageModelTask& task, const std::string& more) {
    Config fields([&](ConfigFields& each) { each.nest("task", task); });
    fields.apply_override("task.init_checkpoint=" + folder.path().string() + more);
    task.complete(fields);
    fields.lock();
    return fields.changes();
  };
  LanguageModelTask task;
  const auto changes = complete(task, "");
  EXPECT_EQ(*task.model.head_dim, 6);
  EXPECT_EQ(*task.model.rope_theta, 5e5);
  EXPECT_EQ(*task.model.num_hidden_layers, 2);
  EXPECT_EQ(changes.front().path, "task.model.hidden_size");
  EXPECT_EQ(changes.front().origin, (folder / "config.json").string());
  Model model = task.build_model();
  task.initialize(model);
  const NamedTensors wanted = load_weights(folder / "model.safetensors").tensors;
  const NamedTensors got = model.weights();
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(std::any_of(wanted.begin(), wanted.end(), [&](const auto& each) {
      return each.first == got[i].first && each.second.equal(got[i].second);
    })) << got[i].first;
  }

  LanguageModelTask other;
  complete(other, ",task.model.rope_theta=10000,task.model.dropout_rate=0.1");
  expect_error<InvalidArgument>([&] { other.build_model(); }, "task.model.rope_theta is 10000, wanted 500000");
  LanguageModelTask untouched;  // of a program that sets the fields itself
  untouched.init_checkpoint = folder.path().string();
  expect_error<InvalidArgument>([&] { untouched.build_model(); }, "task.model.hidden_size is 256, wanted 16");
}

TEST(HuggingFace, SetsTheKeysOfABert) {
  const TemporaryFolder folder;
  const json config = {{"model_type", "bert"},      {"vocab_size", 300},        {"hidden_size", 16},
                       {"num_hidden_layers", 1},    {"num_attention_heads", 2}, {"intermediate_size", 12},
                       {"hidden_act", "relu"},      {"layer_norm_eps", 1e-5},   {"max_position_embeddings", 40},
                       {"hidden_dropout_prob", 0.3}};
  write_file(folder / "config.json", config.dump());
  write_file(folder / "model.safetensors", "");
  MaskedLanguageModelTask task;
  Config fields([&](ConfigFields& each) { each.nest("task", task); });
  fields.apply_override("task.init_checkpoint=" + folder.path().string());
  task.complete(fields);
  const BertOptions options = task.model.options(true);
  EXPECT_EQ(options.vocab_size, 300);
  EXPECT_EQ(options.norm_epsilon, 1e-5);
  EXPECT_EQ(options.activation.name(), "relu");
  EXPECT_EQ(options.mlm_activation.name(), "relu");
  EXPECT_EQ(options.max_positions, 40);
  EXPECT_EQ(options.dropout, 0.3);
  task.build_model();
  task.model.encoder.bert.layer_norm_eps = 1e-12;
  expect_error<InvalidArgument>([&] { task.build_model(); },
                                "task.model.encoder.bert.layer_norm_eps is 1e-12, wanted 1e-05");
}

}  // namespace
}  // namespace cohort::models::hugging_face_test
