// Masked language modelling as an experiment's task: BERT, which tells hidden tokens of a text, and whether two texts
// belong together, with the names of Model Garden's bert/pretraining.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cohort/models/experiment.h"
#include "cohort/models/text_models.h"

namespace cohort {

// The size of the vocabulary: bytes, and the tokens that pad, begin, separate and hide.
inline constexpr int64_t kByteTokens = 260;

// The text, and what is hidden of it. docs/settings.md has the meaning of each field.
struct BertDataConfig {
  Setting<std::string> input_path;
  Setting<std::vector<std::string>> suffixes;
  Setting<int64_t> global_batch_size = 512;
  Setting<bool> is_training = true;
  Setting<bool> drop_remainder = true;
  Setting<int64_t> shuffle_buffer_size = 10'000;
  Setting<int64_t> prefetch_buffer_size = -1;
  Setting<int64_t> seed = -1;
  Setting<bool> sharding = true;
  Setting<bool> deterministic = true;
  Setting<double> held_out = 0.1;
  Setting<int64_t> seq_length = 512;
  Setting<int64_t> max_predictions_per_seq = 76;
  Setting<double> masking_rate = 0.15;
  Setting<double> short_seq_prob = 0.1;
  Setting<bool> use_next_sentence_label = true;
  Setting<bool> use_position_id = false;

  // Adds the fields with their meanings.
  void describe(ConfigFields& fields);
};

// The model. docs/settings.md has the meaning of each field.
struct BertConfig {
  struct {
    Setting<std::string> type = "bert";
    struct {
      Setting<int64_t> vocab_size = 30'522;
      Setting<int64_t> hidden_size = 768;
      Setting<int64_t> num_layers = 12;
      Setting<int64_t> num_attention_heads = 12;
      Setting<std::string> hidden_activation = "gelu";
      Setting<int64_t> intermediate_size = 3072;
      Setting<double> dropout_rate = 0.1;
      Setting<double> attention_dropout_rate = 0.1;
      Setting<int64_t> max_position_embeddings = 512;
      Setting<int64_t> type_vocab_size = 2;
      Setting<double> initializer_range = 0.02;
      Setting<double> layer_norm_eps = 1e-12;
    } bert;
  } encoder;  // the encoder by its type
  Setting<std::string> mlm_activation = "gelu";
  Setting<double> mlm_initializer_range = 0.02;
  Setting<bool> remat = false;

  // Adds the fields with their meanings.
  void describe(ConfigFields& fields);
  // Returns them as the model takes them, with or without the head for the next sentence.
  models::BertOptions options(bool next_sentence) const;
};

// A task for experiments with text of which a part is hidden. Change its fields before you hand it over.
class MaskedLanguageModelTask : public Task {
 public:
  BertConfig model;                                                               // the group "model"
  BertDataConfig train_data;                                                      // the group "train_data"
  BertDataConfig validation_data{.is_training = false, .drop_remainder = false};  // the group "validation_data"
  Setting<std::string> init_checkpoint;
  std::string builtin_data;  // the data without a file: "sums"; empty: none

  void describe(ConfigFields& fields) override;
  // Sets the keys of the model as config.json of a folder of Hugging Face's says, if init_checkpoint is one.
  void complete(Config& config) override;

  TaskData build_inputs(const RuntimeConfig& runtime, bool training) override;
  Example example_batch() const override;
  LayoutMap mesh_layout(const std::string& axis, const MeshCuts& cuts) const override;
  std::vector<std::string> pipeline_cut(int chunks) const override;
  void check_sequence(const std::string& axis) const override;
  Model build_model() override;
  // Adds the loss of masked tokens and that of the next sentence, and the metrics, under Model Garden's names:
  // lm_example_loss, masked_lm_accuracy, next_sentence_loss, next_sentence_accuracy.
  void add_losses(CompileOptions& options) override;
  // Takes the weights of a safetensors file, of a checkpoint's folder, or of a folder of Hugging Face's.
  void initialize(Model& model) override;

 private:
  std::filesystem::path initial_;  // the weights that the model that was built last starts from; empty: none
};

}  // namespace cohort
