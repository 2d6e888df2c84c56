#include "wings/text/models/model_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/fail.h"
#include "wings/text/models/decoder_options.h"

namespace cohort {

namespace {

std::string yaml_of(bool flag) {
  return flag ? "true" : "false";
}
std::string yaml_of(int64_t number) {
  return std::to_string(number);
}
std::string yaml_of(double number) {
  return fmt::format("{}", number);
}

}  // namespace

ModelKeys keys_of(const models::DecoderOptions& given) {
  const models::DecoderOptions options = models::checked(given);
  const models::RopeScaling& scaling = options.rope_scaling;
  return {{"vocab_size", yaml_of(options.vocab_size)},
          {"hidden_size", yaml_of(options.hidden_size)},
          {"intermediate_size", yaml_of(options.intermediate_size)},
          {"num_hidden_layers", yaml_of(options.num_layers)},
          {"num_attention_heads", yaml_of(options.num_heads)},
          {"num_key_value_heads", yaml_of(options.num_kv_heads)},
          {"head_dim", yaml_of(options.head_dim)},
          {"attention_bias", yaml_of(options.attention_bias)},
          {"qkv_bias", yaml_of(options.qkv_bias)},
          {"mlp_bias", yaml_of(options.mlp_bias)},
          {"rope_theta", yaml_of(options.rope_theta)},
          {"rope_scaling.rope_type", scaling.type},
          {"rope_scaling.factor", yaml_of(scaling.factor)},
          {"rope_scaling.low_freq_factor", yaml_of(scaling.low_freq_factor)},
          {"rope_scaling.high_freq_factor", yaml_of(scaling.high_freq_factor)},
          {"rope_scaling.original_max_position_embeddings", yaml_of(scaling.original_max_positions)},
          {"rms_norm_eps", yaml_of(options.norm_epsilon)},
          {"tie_word_embeddings", yaml_of(options.tie_word_embeddings)}};
}

ModelKeys keys_of(const models::BertOptions& options) {
  const std::string encoder = "encoder.bert.";
  return {{encoder + "vocab_size", yaml_of(options.vocab_size)},
          {encoder + "hidden_size", yaml_of(options.hidden_size)},
          {encoder + "num_layers", yaml_of(options.num_layers)},
          {encoder + "num_attention_heads", yaml_of(options.num_heads)},
          {encoder + "intermediate_size", yaml_of(options.intermediate_size)},
          {encoder + "hidden_activation", std::string(options.activation.name())},
          {encoder + "max_position_embeddings", yaml_of(options.max_positions)},
          {encoder + "type_vocab_size", yaml_of(options.type_vocab_size)},
          {encoder + "layer_norm_eps", yaml_of(options.norm_epsilon)},
          {"mlm_activation", std::string(options.mlm_activation.name())}};
}

ModelKeys training_keys_of(const models::DecoderOptions& options) {
  return {{"initializer_range", yaml_of(options.initializer_range)}};
}

ModelKeys training_keys_of(const models::BertOptions& options) {
  const std::string encoder = "encoder.bert.";
  return {{encoder + "dropout_rate", yaml_of(options.dropout)},
          {encoder + "attention_dropout_rate", yaml_of(options.attention_dropout)},
          {encoder + "initializer_range", yaml_of(options.initializer_range)},
          {"mlm_initializer_range", yaml_of(options.mlm_initializer_range)}};
}

void set_missing(const ModelKeys& keys, const std::filesystem::path& folder, Config& config) {
  for (const auto& [key, value] : keys) {
    const std::string path = "task.model." + key;
    const auto& fields = config.fields();
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const auto& each) { return each.path == path; });
    if (field->origin.empty()) config.set(path, value, (folder / "config.json").string());
  }
}

void require_same(const ModelKeys& own, const ModelKeys& theirs, const std::filesystem::path& folder) {
  std::string differences;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i] == theirs[i]) continue;
    differences += c10::str("\n  task.model.", own[i].first, " is ", own[i].second, ", wanted ", theirs[i].second);
  }
  if (differences.empty()) return;
  fail<InvalidArgument>("[task] the weights of ", folder.string(), " are for another model, which its config.json ",
                        "describes:", differences);
}

}  // namespace cohort
