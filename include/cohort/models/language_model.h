// Language modelling as an experiment's task: a decoder that foretells the next byte of a text. The fields of the model
// have the names that configurations of Hugging Face's Llama give them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cohort/models/experiment.h"
#include "cohort/models/text_models.h"

namespace cohort {

// The text. docs/settings.md has the meaning of each field.
struct TextDataConfig {
  Setting<std::string> input_path;
  Setting<std::vector<std::string>> suffixes;
  Setting<int64_t> global_batch_size = 32;
  Setting<bool> is_training = true;
  Setting<bool> drop_remainder = true;
  Setting<int64_t> shuffle_buffer_size = 10'000;
  Setting<int64_t> prefetch_buffer_size = -1;
  Setting<int64_t> seed = -1;
  Setting<bool> sharding = true;
  Setting<bool> deterministic = true;
  Setting<double> held_out = 0.1;

  // Adds the fields with their meanings.
  void describe(ConfigFields& fields);
};

// The decoder. docs/settings.md has the meaning of each field.
struct DecoderConfig {
  Setting<int64_t> vocab_size = 256;
  Setting<int64_t> hidden_size = 256;
  Setting<int64_t> intermediate_size = 688;
  Setting<int64_t> num_hidden_layers = 4;
  Setting<int64_t> num_attention_heads = 4;
  Setting<int64_t> num_key_value_heads = 0;
  Setting<int64_t> head_dim = 0;
  Setting<bool> attention_bias = false;
  Setting<bool> qkv_bias = false;
  Setting<bool> mlp_bias = false;
  Setting<double> rope_theta = 10'000.0;
  struct {
    Setting<std::string> rope_type;
    Setting<double> factor = models::RopeScaling().factor;
    Setting<double> low_freq_factor = models::RopeScaling().low_freq_factor;
    Setting<double> high_freq_factor = models::RopeScaling().high_freq_factor;
    Setting<int64_t> original_max_position_embeddings = 0;
  } rope_scaling;  // changes to the angles of positions
  Setting<double> rms_norm_eps = 1e-5;
  Setting<double> initializer_range = 0.02;
  Setting<double> dropout_rate = 0.0;
  Setting<bool> tie_word_embeddings = true;
  Setting<bool> remat = false;
  struct {
    Setting<int64_t> rank = 0;
    Setting<double> alpha = 16.0;
    Setting<double> dropout = 0.0;
    Setting<std::vector<std::string>> target_modules = {"q_proj", "k_proj", "v_proj", "o_proj"};
  } lora;  // adapters instead of learning everything

  // Adds the fields with their meanings.
  void describe(ConfigFields& fields);
  // Returns them as the model takes them.
  models::DecoderOptions options() const;

 private:
  models::RopeScaling scaling() const;
};

// A task for experiments with text. Change its fields before you hand it over.
class LanguageModelTask : public Task {
 public:
  DecoderConfig model;                                                            // the group "model"
  TextDataConfig train_data;                                                      // the group "train_data"
  TextDataConfig validation_data{.is_training = false, .drop_remainder = false};  // the group "validation_data"
  Setting<int64_t> seq_length = 128;
  Setting<std::string> init_checkpoint;
  std::string builtin_data;  // the data without a file: "sums"; empty: none

  void describe(ConfigFields& fields) override;
  // Sets the keys of the model as config.json of a folder of Hugging Face's says, if init_checkpoint is one.
  void complete(Config& config) override;

  TaskData build_inputs(const RuntimeConfig& runtime, bool training) override;
  Example example_batch() const override;
  LayoutMap mesh_layout(const std::string& axis, const MeshCuts& cuts) const override;
  std::vector<std::string> pipeline_cut(int chunks) const override;
  Model build_model() override;
  std::optional<Loss> build_loss() override;
  std::vector<Metric> build_metrics() override;
  // Takes the weights of a safetensors file, of a checkpoint's folder, or of a folder of Hugging Face's. With adapters
  // theirs may be missing there.
  void initialize(Model& model) override;

 private:
  std::filesystem::path initial_;  // the weights that the model that was built last starts from; empty: none
  bool adapts_ = false;            // whether it has adapters
};

}  // namespace cohort
