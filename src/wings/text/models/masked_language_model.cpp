// MaskedLanguageModelTask: puts together the text, BERT and the losses that its fields ask for.
#include "cohort/models/masked_language_model.h"

#include <ATen/Functions.h>

#include "base/fail.h"
#include "cohort/models/text_models.h"
#include "cohort/train/basic_losses.h"
#include "cohort/train/basic_metrics.h"
#include "models/tasks/epoch.h"
#include "models/tasks/initial_weights.h"
#include "models/tasks/mesh_cuts.h"
#include "models/tasks/shared_fields.h"
#include "models/tasks/task_source.h"
#include "wings/text/models/model_keys.h"
#include "wings/text/models/pretraining_data.h"

namespace cohort {

namespace {

void require_fit(const MaskedLanguageModelTask& task) {
  const int64_t most = task.model.encoder.bert.max_position_embeddings;
  for (const BertDataConfig* data : {&task.train_data, &task.validation_data}) {
    if (data->seq_length <= most) continue;
    fail<InvalidArgument>("[task] task.", data == &task.train_data ? "train_data" : "validation_data",
                          ".seq_length is ", data->seq_length,
                          ", wanted at most task.model.encoder.bert.max_position_embeddings, ", most);
  }
  if (task.train_data.use_next_sentence_label == task.validation_data.use_next_sentence_label) return;
  fail<InvalidArgument>("[task] task.train_data.use_next_sentence_label is ", task.train_data.use_next_sentence_label,
                        " and task.validation_data.use_next_sentence_label is ",
                        task.validation_data.use_next_sentence_label,
                        "; wanted the same, because the model has a head for it or not");
}

Activation activation_of(const char* key, const std::string& name) {
  Activation activation;
  blame(c10::str("[task] task.model.", key), [&] { activation = Activation::parse(name); });
  return activation;
}

}  // namespace

void BertDataConfig::describe(ConfigFields& fields) {
  describe_text(*this, fields);
  fields.add("seq_length", seq_length, "tokens of an example, with [CLS] and each [SEP]");
  fields.add("max_predictions_per_seq", max_predictions_per_seq, "the most tokens of an example that are hidden");
  fields.add("masking_rate", masking_rate, "part of the bytes of an example that is hidden");
  fields.add("short_seq_prob", short_seq_prob, "part of the examples that is shorter, and padded");
  fields.add("use_next_sentence_label", use_next_sentence_label,
             "whether an example has two texts, and the model tells whether they belong together");
  fields.add("use_position_id", use_position_id, "whether the data have positions of their own");
  for (const char* relation :
       {"held_out >= 0", "held_out < 1", "seq_length > 0", "max_predictions_per_seq > 0", "masking_rate > 0",
        "masking_rate <= 1", "short_seq_prob >= 0", "short_seq_prob <= 1", "use_position_id == false"}) {
    fields.restrict(relation);
  }
}

void BertConfig::describe(ConfigFields& fields) {
  fields.add("encoder.type", encoder.type, "the encoder", {"bert"});
  fields.group("encoder.bert", [this](ConfigFields& inner) {
    auto& own = encoder.bert;
    inner.add("vocab_size", own.vocab_size, "tokens; those of a text are its bytes, [PAD], [CLS], [SEP] and [MASK]");
    inner.add("hidden_size", own.hidden_size, "size of a token's vector");
    inner.add("num_layers", own.num_layers, "blocks of attention and dense layers");
    inner.add("num_attention_heads", own.num_attention_heads, "heads of attention");
    inner.add("hidden_activation", own.hidden_activation, "activation of the hidden layer of a block");
    inner.add("intermediate_size", own.intermediate_size, "size of the hidden layer of a block");
    inner.add("dropout_rate", own.dropout_rate, "rate of dropout of the embeddings and of what a block adds");
    inner.add("attention_dropout_rate", own.attention_dropout_rate, "rate of dropout of the weights of attention");
    inner.add("max_position_embeddings", own.max_position_embeddings, "the most tokens of an example");
    inner.add("type_vocab_size", own.type_vocab_size, "types of tokens: those of the first and of the second text");
    inner.add("initializer_range", own.initializer_range, "deviation of what new matrices are drawn from");
    inner.add("layer_norm_eps", own.layer_norm_eps, "epsilon of the norms");
    for (const char* relation :
         {"vocab_size >= 260", "hidden_size > 0", "num_layers > 0", "num_attention_heads > 0", "intermediate_size > 0",
          "dropout_rate >= 0", "dropout_rate < 1", "attention_dropout_rate >= 0", "attention_dropout_rate < 1",
          "max_position_embeddings > 0", "type_vocab_size >= 2", "initializer_range >= 0", "layer_norm_eps >= 0"}) {
      inner.restrict(relation);
    }
  });
  fields.add("mlm_activation", mlm_activation, "activation of the head for hidden tokens");
  fields.add("mlm_initializer_range", mlm_initializer_range, "deviation of what the matrix of that head is drawn from");
  fields.restrict("mlm_initializer_range >= 0");
  fields.add("remat", remat, "whether backward computes blocks again, so that their activations are not kept");
}

models::BertOptions BertConfig::options(bool next_sentence) const {
  const auto& own = encoder.bert;
  return {.vocab_size = own.vocab_size,
          .hidden_size = own.hidden_size,
          .num_layers = own.num_layers,
          .num_heads = own.num_attention_heads,
          .intermediate_size = own.intermediate_size,
          .activation = activation_of("encoder.bert.hidden_activation", own.hidden_activation),
          .dropout = own.dropout_rate,
          .attention_dropout = own.attention_dropout_rate,
          .max_positions = own.max_position_embeddings,
          .type_vocab_size = own.type_vocab_size,
          .norm_epsilon = own.layer_norm_eps,
          .initializer_range = own.initializer_range,
          .mlm_activation = activation_of("mlm_activation", mlm_activation),
          .mlm_initializer_range = mlm_initializer_range,
          .next_sentence = next_sentence,
          .remat = remat};
}

void MaskedLanguageModelTask::describe(ConfigFields& fields) {
  fields.nest("model", model);
  fields.nest("train_data", train_data);
  fields.nest("validation_data", validation_data);
  fields.add("init_checkpoint", init_checkpoint,
             "weights to start from: a safetensors file, a checkpoint's folder, or a folder of Hugging Face's");
}

void MaskedLanguageModelTask::complete(Config& config) {
  if (!is_hugging_face(*init_checkpoint)) return;
  set_missing_by(models::bert_options(*init_checkpoint), *init_checkpoint, config);
}

TaskData MaskedLanguageModelTask::build_inputs(const RuntimeConfig& runtime, bool training) {
  require_fit(*this);
  // What is wrong with the model is said before the data are read.
  static_cast<void>(model.options(train_data.use_next_sentence_label));
  const TaskSource source = open_pretraining_text(*this, runtime, training);
  const auto seed_of = [&](const BertDataConfig& data) {
    return static_cast<uint64_t>(data.seed >= 0 ? *data.seed : *runtime.seed);
  };
  const Dataset shuffled = source.train.shuffle(train_data.shuffle_buffer_size, {.seed = seed_of(train_data)});
  const Dataset train = pretraining_batches(shuffled, train_data, seed_of(train_data), /*same_in_each_pass=*/false);
  const Dataset validation =
      pretraining_batches(source.validation, validation_data, seed_of(validation_data), /*same_in_each_pass=*/true);
  TaskData data{.train = ahead(train.repeat(), train_data.prefetch_buffer_size),
                .validation = ahead(validation, validation_data.prefetch_buffer_size),
                .description = source.description,
                .shard_train = train_data.sharding,
                .shard_validation = validation_data.sharding};
  data.steps_per_epoch = steps_per_epoch(train_data, source.train, source.description,
                                         c10::str("examples of ", train_data.seq_length, " tokens"), training);
  return data;
}

Example MaskedLanguageModelTask::example_batch() const {
  const MaskingPlan masking = masking_of(train_data);
  const auto tokens = [&](int64_t count, torch::ScalarType dtype = torch::kLong) {
    return at::zeros({}, dtype).expand({train_data.global_batch_size, count});
  };
  Example batch{.inputs = {{"input_word_ids", tokens(masking.seq_length)},
                           {"input_mask", tokens(masking.seq_length)},
                           {"input_type_ids", tokens(masking.seq_length)},
                           {"masked_lm_positions", tokens(masking.max_predictions)}},
                .targets = {{"mlm_logits", tokens(masking.max_predictions)}},
                .masks = {{"mlm_logits", tokens(masking.max_predictions, torch::kBool)}}};
  if (masking.next_sentence) batch.targets.emplace_back("next_sentence", tokens(1).select(1, 0));
  return batch;
}

LayoutMap MaskedLanguageModelTask::mesh_layout(const std::string& axis, const MeshCuts& cuts) const {
  require_whole_mlps(axis, cuts);
  return layouts::transformer(model.options(train_data.use_next_sentence_label), axis, cuts.vocabulary);
}

void MaskedLanguageModelTask::check_sequence(const std::string& axis) const {
  refuse_sequence(axis, "the attention of BERT takes whole sequences",
                  "the axes batch, model and stage divide examples, heads and layers");
}

std::vector<std::string> MaskedLanguageModelTask::pipeline_cut(int chunks) const {
  require_kept_blocks(model.remat);
  return layouts::pipeline_cut(model.options(train_data.use_next_sentence_label), chunks);
}

Model MaskedLanguageModelTask::build_model() {
  const models::BertOptions options = model.options(train_data.use_next_sentence_label);
  initial_ = *init_checkpoint;
  if (is_hugging_face(initial_)) require_same(keys_of(options), keys_of(models::bert_options(initial_)), initial_);
  return Model([options] { return models::bert(options); }, "bert");
}

void MaskedLanguageModelTask::add_losses(CompileOptions& options) {
  const SparseCategoricalCrossentropyOptions of_logits{.from_logits = true, .name = "lm_example_loss"};
  options.losses = {{"mlm_logits", SparseCategoricalCrossentropy(of_logits)}};
  options.output_metrics = {{"mlm_logits", {SparseCategoricalAccuracy({.name = "masked_lm_accuracy"})}}};
  options.log_names = {{"mlm_logits_loss", "lm_example_loss"}};
  if (!train_data.use_next_sentence_label) return;  // the loss is that of the tokens alone
  options.losses.emplace_back("next_sentence", SparseCategoricalCrossentropy({.from_logits = true}));
  options.output_metrics.push_back({"next_sentence", {SparseCategoricalAccuracy({.name = "accuracy"})}});
  options.log_names.emplace_back("mlm_logits_masked_lm_accuracy", "masked_lm_accuracy");
}

void MaskedLanguageModelTask::initialize(Model& built) {
  if (initial_.empty()) return;
  start_from_bert(initial_, built);
}

}  // namespace cohort
