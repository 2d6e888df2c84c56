// Reads config.json of folders that Hugging Face's transformers wrote: which model the weights beside it are for.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/fail.h"
#include "base/log.h"
#include "base/regular_file.h"
#include "cohort/models/text_models.h"
#include "wings/text/models/decoder_options.h"

namespace cohort::models {

namespace {

using nlohmann::json;

// Keys that change nothing of what a model computes of tokens, or that go without saying.
constexpr std::array kHarmless = {"_name_or_path",
                                  "architectures",
                                  "attn_implementation",
                                  "_attn_implementation",
                                  "bos_token_id",
                                  "chunk_size_feed_forward",
                                  "classifier_dropout",
                                  "dtype",
                                  "eos_token_id",
                                  "gradient_checkpointing",
                                  "id2label",
                                  "label2id",
                                  "max_position_embeddings",
                                  "max_window_layers",
                                  "model_type",
                                  "pad_token_id",
                                  "pretraining_tp",
                                  "torch_dtype",
                                  "transformers_version",
                                  "use_cache"};

// Parses JSON, in which a key may not stand twice: parsers would take the last one.
json parse_once(const std::string& text, const std::string& file) {
  std::vector<std::set<std::string>> seen;
  std::string twice;
  const auto note = [&](int /*depth*/, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) seen.emplace_back();
    if (event == json::parse_event_t::object_end) seen.pop_back();
    if (event == json::parse_event_t::key && !seen.back().insert(parsed.get<std::string>()).second) {
      twice = parsed.get<std::string>();
    }
    return true;
  };
  json made = json::parse(text, note, /*allow_exceptions=*/false);
  if (!made.is_object()) fail<DataLoss>("[models] ", file, ": wanted an object of JSON");
  if (!twice.empty()) fail<DataLoss>("[models] ", file, ": the key ", twice, " is there twice");
  return made;
}

// An object of a config.json, whose keys are read by name.
class Keys {
 public:
  Keys(json object, std::string file, std::string prefix = "")
      : object_(std::move(object)), file_(std::move(file)), prefix_(std::move(prefix)) {}

  static Keys of(const std::filesystem::path& folder) {
    const std::filesystem::path file = folder / "config.json";
    const auto text = read_regular_file(file, "models");
    if (!text) fail<NotFound>("[models] ", file.string(), ": there is no such file");
    return {parse_once(*text, file.string()), file.string()};
  }

  // Returns whether the key is there and is not null.
  bool has(const char* key) {
    read_.insert(key);
    return object_.contains(key) && !object_[key].is_null();
  }
  template <typename T>
  T get(const char* key) {
    if (!has(key)) fail<NotFound>("[models] ", file_, ": there is no ", prefix_, key);
    T value{};
    if (!take(object_[key], value)) refuse_value(key, wanted_of(value));
    return value;
  }
  template <typename T>
  T get(const char* key, T otherwise) {
    return has(key) ? get<T>(key) : otherwise;
  }
  // Returns whether the key is there, null or not.
  bool contains(const char* key) const { return object_.contains(key); }
  Keys group(const char* key) {
    if (!object_[key].is_object()) refuse_value(key, "an object");
    return {object_[key], file_, prefix_ + key + "."};
  }

  // Fails unless the key is missing, null, or the value.
  void require(const char* key, const json& value) {
    if (has(key) && object_[key] != value) unimplemented(key, value.dump());
  }
  // The same for each item of a list.
  void require_each(const char* key, const json& value) {
    if (!has(key)) return;
    for (const json& item : object_[key]) {
      if (item != value) unimplemented(key, value.dump() + " everywhere");
    }
  }
  [[noreturn]] void unimplemented(const char* key, const std::string& wanted) const {
    fail<Unimplemented>("[models] ", file_, ": ", prefix_, key, " is ",
                        object_.contains(key) ? object_[key].dump() : "missing", ", wanted ", wanted,
                        ": the model does not do anything else");
  }
  // Fails if there is a key that nothing has read.
  void refuse_others() const {
    const std::vector<std::string> names = others();
    if (!names.empty()) unimplemented(names.front().c_str(), "no such key");
  }
  // Names the keys that nothing has read, but for those that do not matter.
  void warn_of_others() const {
    const std::vector<std::string> names = others();
    if (!names.empty()) log().warn("[models] {}: not known and left out: {}", file_, c10::Join(", ", names));
  }

 private:
  std::vector<std::string> others() const {
    std::vector<std::string> names;
    for (const auto& [key, value] : object_.items()) {
      const bool harmless = std::find(kHarmless.begin(), kHarmless.end(), key) != kHarmless.end();
      if (!harmless && !read_.contains(key) && !value.is_null() && value != false) names.push_back(key);
    }
    return names;
  }

  static const char* wanted_of(int64_t /*value*/) { return "a whole number of 1 or more"; }
  static const char* wanted_of(double /*value*/) { return "a number of 0 or more"; }
  static const char* wanted_of(bool /*value*/) { return "true or false"; }
  static const char* wanted_of(const std::string& /*value*/) { return "a text"; }

  static bool take(const json& from, int64_t& value) {
    if (!from.is_number_integer()) return false;
    value = from.get<int64_t>();
    return value >= 1 && !(from.is_number_unsigned() && from.get<uint64_t>() > std::numeric_limits<int64_t>::max());
  }
  static bool take(const json& from, double& value) {
    if (!from.is_number()) return false;
    value = from.get<double>();
    return std::isfinite(value) && value >= 0.0;
  }
  static bool take(const json& from, bool& value) {
    if (!from.is_boolean()) return false;
    value = from.get<bool>();
    return true;
  }
  static bool take(const json& from, std::string& value) {
    if (!from.is_string()) return false;
    value = from.get<std::string>();
    return true;
  }
  [[noreturn]] void refuse_value(const char* key, const char* wanted) const {
    fail<InvalidArgument>("[models] ", file_, ": ", prefix_, key, " is ", object_[key].dump(), ", wanted ", wanted);
  }

  json object_;
  std::string file_;
  std::string prefix_;
  std::set<std::string> read_;
};

// Reads rope_scaling, or rope_parameters, which has rope_theta too.
RopeScaling scaling_of(Keys keys, int64_t max_positions, double& theta) {
  theta = keys.get<double>("rope_theta", theta);
  const bool older = keys.has("type") && !keys.has("rope_type");
  const char* const key = older ? "type" : "rope_type";
  RopeScaling scaling{.type = keys.get<std::string>(key, "default")};
  keys.require("partial_rotary_factor", 1.0);
  if (scaling.type == "default") {
    scaling.type = "";
  } else if (scaling.type != "linear" && scaling.type != "dynamic" && scaling.type != "llama3") {
    keys.unimplemented(key, "default, linear, dynamic or llama3");
  } else {
    scaling.factor = keys.get<double>("factor");
  }
  if (scaling.type == "dynamic") scaling.original_max_positions = max_positions;
  if (scaling.type == "llama3") {
    scaling.low_freq_factor = keys.get<double>("low_freq_factor");
    scaling.high_freq_factor = keys.get<double>("high_freq_factor");
    scaling.original_max_positions = keys.get<int64_t>("original_max_position_embeddings");
  }
  keys.refuse_others();
  return scaling;
}

void read_rotations(Keys& keys, DecoderOptions& options) {
  options.rope_theta = keys.get<double>("rope_theta", 10'000.0);
  keys.require("partial_rotary_factor", 1.0);
  const char* group = keys.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!keys.has(group)) return;
  options.rope_scaling =
      scaling_of(keys.group(group), keys.get<int64_t>("max_position_embeddings", 0), options.rope_theta);
}

// A window of attention counts unless a key switches it off, which Qwen2 has off where it is missing.
void refuse_window(Keys& keys, const std::string& type) {
  const bool used = keys.get<bool>("use_sliding_window", type != "qwen2");
  const bool windowed = keys.has("sliding_window");
  if (used && windowed) keys.unimplemented("sliding_window", "null");
  // A Mistral whose key is missing has a window of 4,096.
  if (used && type == "mistral" && !keys.contains("sliding_window")) keys.unimplemented("sliding_window", "null");
}

}  // namespace

DecoderOptions decoder_options(const std::filesystem::path& folder) {
  Keys keys = Keys::of(folder);
  const auto type = keys.get<std::string>("model_type");
  if (type != "llama" && type != "mistral" && type != "qwen2") {
    keys.unimplemented("model_type", "llama, mistral or qwen2");
  }
  DecoderOptions options{.vocab_size = keys.get<int64_t>("vocab_size"),
                         .hidden_size = keys.get<int64_t>("hidden_size"),
                         .intermediate_size = keys.get<int64_t>("intermediate_size"),
                         .num_layers = keys.get<int64_t>("num_hidden_layers"),
                         .num_heads = keys.get<int64_t>("num_attention_heads"),
                         .head_dim = keys.get<int64_t>("head_dim", 0),
                         .attention_bias = keys.get<bool>("attention_bias", false),
                         .qkv_bias = type == "qwen2",
                         .mlp_bias = keys.get<bool>("mlp_bias", false),
                         .norm_epsilon = keys.get<double>("rms_norm_eps", 1e-6),
                         .initializer_range = keys.get<double>("initializer_range", 0.02),
                         .tie_word_embeddings = keys.get<bool>("tie_word_embeddings", false)};
  // Those without the key have another number than of heads, by their type.
  options.num_kv_heads = type == "llama" ? keys.get<int64_t>("num_key_value_heads", options.num_heads)
                                         : keys.get<int64_t>("num_key_value_heads");
  read_rotations(keys, options);
  if (const auto act = keys.get<std::string>("hidden_act", "silu"); act != "silu" && act != "swish") {
    keys.unimplemented("hidden_act", "silu");
  }
  if (type != "llama" && options.attention_bias) keys.unimplemented("attention_bias", "false");
  if (type != "llama" && options.mlp_bias) keys.unimplemented("mlp_bias", "false");
  refuse_window(keys, type);
  if (keys.get<double>("attention_dropout", 0.0) != 0.0) keys.unimplemented("attention_dropout", "0");
  keys.require_each("layer_types", "full_attention");
  if (keys.has("quantization_config")) keys.unimplemented("quantization_config", "weights as they are");
  keys.warn_of_others();
  return checked(options);
}

BertOptions bert_options(const std::filesystem::path& folder) {
  Keys keys = Keys::of(folder);
  if (keys.get<std::string>("model_type") != "bert") keys.unimplemented("model_type", "bert");
  // Those that Keras and transformers give the same function and name.
  constexpr std::array kActivations = {"gelu", "relu", "relu6", "silu", "swish", "tanh", "sigmoid", "selu", "elu"};
  const auto act = keys.get<std::string>("hidden_act", "gelu");
  if (std::find(kActivations.begin(), kActivations.end(), act) == kActivations.end()) {
    keys.unimplemented("hidden_act", c10::Join(", ", kActivations));
  }
  BertOptions options{.vocab_size = keys.get<int64_t>("vocab_size"),
                      .hidden_size = keys.get<int64_t>("hidden_size"),
                      .num_layers = keys.get<int64_t>("num_hidden_layers"),
                      .num_heads = keys.get<int64_t>("num_attention_heads"),
                      .intermediate_size = keys.get<int64_t>("intermediate_size"),
                      .activation = Activation::parse(act),
                      .dropout = keys.get<double>("hidden_dropout_prob", 0.1),
                      .attention_dropout = keys.get<double>("attention_probs_dropout_prob", 0.1),
                      .max_positions = keys.get<int64_t>("max_position_embeddings"),
                      .type_vocab_size = keys.get<int64_t>("type_vocab_size", 2),
                      .norm_epsilon = keys.get<double>("layer_norm_eps", 1e-12),
                      .initializer_range = keys.get<double>("initializer_range", 0.02),
                      .mlm_activation = Activation::parse(act)};
  options.mlm_initializer_range = options.initializer_range;
  keys.require("position_embedding_type", "absolute");
  for (const char* key : {"is_decoder", "add_cross_attention"}) keys.require(key, false);
  if (keys.has("quantization_config")) keys.unimplemented("quantization_config", "weights as they are");
  keys.warn_of_others();
  return options;
}

}  // namespace cohort::models
