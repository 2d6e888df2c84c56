// LanguageModelTask: puts together the text, the decoder and the loss that its fields ask for.
#include "cohort/models/language_model.h"

#include <ATen/Functions.h>

#include "base/fail.h"
#include "cohort/data/datasets.h"
#include "cohort/models/text_models.h"
#include "cohort/train/basic_losses.h"
#include "cohort/train/basic_metrics.h"
#include "models/tasks/epoch.h"
#include "models/tasks/initial_weights.h"
#include "models/tasks/mesh_cuts.h"
#include "models/tasks/shared_fields.h"
#include "models/tasks/task_source.h"
#include "wings/text/models/model_keys.h"

namespace cohort {

namespace {

TaskSource open_text(const LanguageModelTask& task, const RuntimeConfig& runtime, bool training) {
  const auto open = [&](const std::string& from, const TextDataConfig& data, double held_out) {
    return datasets::text(from,
                          {.seq_length = task.seq_length, .suffixes = data.suffixes, .held_out = held_out, .seed = 0});
  };
  const auto draw = [&] {
    return datasets::drawn_sums({.seq_length = task.seq_length, .seed = static_cast<uint64_t>(runtime.seed)});
  };
  return open_source(task, training, {.missing = "there is no text", .builtin = "sums"}, open, draw);
}

// Returns batches of tokens.
Dataset in_batches(const Dataset& bytes, const TextDataConfig& data) {
  return bytes.batch(data.global_batch_size, {.drop_remainder = data.drop_remainder}).map([](Example batch) {
    batch.x = batch.x.to(torch::kLong);
    batch.y = batch.y.to(torch::kLong);
    return batch;
  });
}

}  // namespace

void TextDataConfig::describe(ConfigFields& fields) {
  describe_text(*this, fields);
  for (const char* relation : {"held_out >= 0", "held_out < 1"}) fields.restrict(relation);
}

void DecoderConfig::describe(ConfigFields& fields) {
  fields.add("vocab_size", vocab_size, "tokens; those of a text are its bytes");
  fields.add("hidden_size", hidden_size, "size of a token's vector");
  fields.add("intermediate_size", intermediate_size, "size of the hidden layer of a block");
  fields.add("num_hidden_layers", num_hidden_layers, "blocks of attention and dense layers");
  fields.add("num_attention_heads", num_attention_heads, "heads of attention");
  fields.add("num_key_value_heads", num_key_value_heads, "heads of keys and values; 0: as many as of attention");
  fields.add("head_dim", head_dim, "size of a head; 0: hidden_size / num_attention_heads");
  fields.add("attention_bias", attention_bias, "whether q_proj, k_proj, v_proj and o_proj have biases");
  fields.add("qkv_bias", qkv_bias, "whether q_proj, k_proj and v_proj have biases, as in Qwen2");
  fields.add("mlp_bias", mlp_bias, "whether gate_proj, up_proj and down_proj have biases");
  fields.add("rope_theta", rope_theta, "base of the angles that tell positions apart");
  fields.group("rope_scaling", [this](ConfigFields& inner) {
    inner.add("rope_type", rope_scaling.rope_type, "changes to these angles for more positions; empty: none",
              {"", "linear", "dynamic", "llama3"});
    inner.add("factor", rope_scaling.factor, "how many times more positions");
    inner.add("low_freq_factor", rope_scaling.low_freq_factor,
              "llama3: angles of at most so many turns in the training are divided by factor");
    inner.add("high_freq_factor", rope_scaling.high_freq_factor, "llama3: angles of at least so many turns stay");
    inner.add("original_max_position_embeddings", rope_scaling.original_max_position_embeddings,
              "dynamic and llama3: positions of the training");
    for (const char* relation : {"factor >= 1", "original_max_position_embeddings >= 0"}) inner.restrict(relation);
  });
  fields.add("rms_norm_eps", rms_norm_eps, "epsilon of the norms");
  fields.add("initializer_range", initializer_range, "deviation of what new matrices are drawn from");
  fields.add("dropout_rate", dropout_rate, "rate of dropout of what a block adds");
  fields.add("tie_word_embeddings", tie_word_embeddings, "whether the embeddings' matrix gives the logits, too");
  fields.add("remat", remat, "whether backward computes blocks again, so that their activations are not kept");
  fields.group("lora", [this](ConfigFields& inner) {
    inner.add("rank", lora.rank, "rank of adapters, which alone learn; 0: none, and everything learns");
    inner.add("alpha", lora.alpha, "the adapters' weight is alpha / rank");
    inner.add("dropout", lora.dropout, "rate of dropout of the adapters' input");
    inner.add("target_modules", lora.target_modules, "projections that get adapters");
  });
  for (const char* relation : {"vocab_size >= 256", "hidden_size > 0", "intermediate_size > 0", "num_hidden_layers > 0",
                               "num_attention_heads > 0", "num_key_value_heads >= 0", "head_dim >= 0", "rope_theta > 0",
                               "rms_norm_eps >= 0", "initializer_range >= 0", "dropout_rate >= 0", "dropout_rate < 1",
                               "lora.rank >= 0", "lora.dropout >= 0", "lora.dropout < 1"}) {
    fields.restrict(relation);
  }
}

models::DecoderOptions DecoderConfig::options() const {
  models::DecoderOptions made{.vocab_size = vocab_size,
                              .hidden_size = hidden_size,
                              .intermediate_size = intermediate_size,
                              .num_layers = num_hidden_layers,
                              .num_heads = num_attention_heads,
                              .num_kv_heads = num_key_value_heads,
                              .head_dim = head_dim,
                              .attention_bias = attention_bias,
                              .qkv_bias = qkv_bias,
                              .mlp_bias = mlp_bias,
                              .rope_theta = rope_theta,
                              .rope_scaling = scaling(),
                              .norm_epsilon = rms_norm_eps,
                              .initializer_range = initializer_range,
                              .dropout = dropout_rate,
                              .tie_word_embeddings = tie_word_embeddings,
                              .remat = remat};
  if (lora.rank == 0) return made;
  made.lora = {.rank = lora.rank, .alpha = lora.alpha, .dropout = lora.dropout, .target_modules = lora.target_modules};
  return made;
}

models::RopeScaling DecoderConfig::scaling() const {
  if (rope_scaling.rope_type->empty()) return {};
  models::RopeScaling made{.type = rope_scaling.rope_type, .factor = rope_scaling.factor};
  if (made.type != "linear") made.original_max_positions = rope_scaling.original_max_position_embeddings;
  if (made.type != "llama3") return made;
  made.low_freq_factor = rope_scaling.low_freq_factor;
  made.high_freq_factor = rope_scaling.high_freq_factor;
  return made;
}

void LanguageModelTask::describe(ConfigFields& fields) {
  fields.nest("model", model);
  fields.nest("train_data", train_data);
  fields.nest("validation_data", validation_data);
  fields.add("seq_length", seq_length, "bytes of an example");
  fields.restrict("seq_length > 0");
  fields.add("init_checkpoint", init_checkpoint,
             "weights to start from: a safetensors file, a checkpoint's folder, or a folder of Hugging Face's");
}

void LanguageModelTask::complete(Config& config) {
  if (!is_hugging_face(*init_checkpoint)) return;
  set_missing_by(models::decoder_options(*init_checkpoint), *init_checkpoint, config);
}

TaskData LanguageModelTask::build_inputs(const RuntimeConfig& runtime, bool training) {
  const TaskSource source = open_text(*this, runtime, training);
  const auto seed = static_cast<uint64_t>(train_data.seed >= 0 ? *train_data.seed : *runtime.seed);
  const Dataset shuffled = source.train.shuffle(train_data.shuffle_buffer_size, {.seed = seed});
  TaskData data{
      .train = ahead(in_batches(shuffled, train_data).repeat(), train_data.prefetch_buffer_size),
      .validation = ahead(in_batches(source.validation, validation_data), validation_data.prefetch_buffer_size),
      .description = source.description,
      .shard_train = train_data.sharding,
      .shard_validation = validation_data.sharding};
  data.steps_per_epoch = steps_per_epoch(train_data, source.train, source.description,
                                         c10::str("examples of ", seq_length, " bytes"), training);
  return data;
}

Example LanguageModelTask::example_batch() const {
  const torch::Tensor tokens = at::zeros({}, torch::kLong).expand({train_data.global_batch_size, seq_length});
  return {.x = tokens, .y = tokens};
}

LayoutMap LanguageModelTask::mesh_layout(const std::string& axis, const MeshCuts& cuts) const {
  require_whole_mlps(axis, cuts);
  return layouts::transformer(model.options(), axis, cuts.vocabulary);
}

std::vector<std::string> LanguageModelTask::pipeline_cut(int chunks) const {
  require_kept_blocks(model.remat);
  return layouts::pipeline_cut(model.options(), chunks);
}

Model LanguageModelTask::build_model() {
  const models::DecoderOptions options = model.options();
  initial_ = *init_checkpoint;
  if (is_hugging_face(initial_)) {
    require_same(keys_of(options), keys_of(models::decoder_options(initial_)), initial_);
  }
  adapts_ = options.lora.rank > 0;
  return Model([options] { return models::decoder(options); }, "decoder");
}

std::optional<Loss> LanguageModelTask::build_loss() {
  return SparseCategoricalCrossentropy({.from_logits = true});
}

std::vector<Metric> LanguageModelTask::build_metrics() {
  return {SparseCategoricalAccuracy({.name = "accuracy"})};
}

void LanguageModelTask::initialize(Model& built) {
  if (initial_.empty()) return;
  if (adapts_) {
    start_beside_adapters(initial_, built);
  } else {
    start_from(initial_, std::nullopt, built);
  }
}

}  // namespace cohort
