#include "wings/text/models/experiments.h"

#include "cohort/models/language_model.h"
#include "cohort/models/masked_language_model.h"

namespace cohort {

namespace {

// A decoder for bytes, with the schedule and the decay that are usual for its kind (T. Brown et al., 2020).
ExperimentConfig language_model(const models::DecoderOptions& size, int64_t seq_length, double rate) {
  auto task = std::make_shared<LanguageModelTask>();
  task->builtin_data = "sums";
  task->seq_length = seq_length;
  task->model.hidden_size = size.hidden_size;
  task->model.intermediate_size = size.intermediate_size;
  task->model.num_hidden_layers = size.num_layers;
  task->model.num_attention_heads = size.num_heads;
  task->model.dropout_rate = size.dropout;
  ExperimentConfig config{.task = task, .trainer = trainer_by_epochs()};
  config.trainer.train_epochs = 4;
  OptimizerConfig& optimizer = config.trainer.optimizer_config;
  optimizer.optimizer.type = "adamw";
  optimizer.optimizer.adamw.beta_2 = 0.99;
  optimizer.optimizer.adamw.weight_decay = 0.1;
  optimizer.optimizer.adamw.exclude_from_weight_decay = {"1d"};
  optimizer.optimizer.global_clipnorm = 1.0;
  optimizer.learning_rate.type = "cosine";
  optimizer.learning_rate.cosine.initial_learning_rate = rate;
  optimizer.learning_rate.cosine.alpha = 0.1;
  optimizer.warmup.type = "linear";
  optimizer.warmup.linear.warmup_steps = 100;
  return config;
}

ExperimentConfig lm_tiny() {
  return language_model({.hidden_size = 128, .intermediate_size = 344, .num_layers = 4, .num_heads = 4}, 128, 3e-3);
}

ExperimentConfig lm_small() {
  return language_model(
      {.hidden_size = 384, .intermediate_size = 1024, .num_layers = 6, .num_heads = 6, .dropout = 0.2}, 256, 1e-3);
}

// J. Devlin et al., "BERT" (2018), of the size of lm_tiny, for bytes.
ExperimentConfig bert_tiny() {
  ExperimentConfig config = language_model({}, 128, 1e-3);
  auto task = std::make_shared<MaskedLanguageModelTask>();
  task->builtin_data = "sums";
  auto& encoder = task->model.encoder.bert;
  encoder.vocab_size = kByteTokens;
  encoder.hidden_size = 128;
  encoder.num_layers = 4;
  encoder.num_attention_heads = 4;
  encoder.intermediate_size = 512;
  encoder.dropout_rate = 0.0;
  encoder.attention_dropout_rate = 0.0;
  encoder.max_position_embeddings = 128;
  for (BertDataConfig* data : {&task->train_data, &task->validation_data}) {
    data->global_batch_size = 32;
    data->seq_length = 128;
    data->max_predictions_per_seq = 20;
  }
  config.task = task;
  return config;
}

// official/nlp/configs/pretraining_experiments.py, with the warm-up of its configuration files.
ExperimentConfig bert_pretraining() {
  ExperimentConfig config{.task = std::make_shared<MaskedLanguageModelTask>()};
  config.trainer.train_steps = 1'000'000;
  OptimizerConfig& optimizer = config.trainer.optimizer_config;
  optimizer.optimizer.type = "adamw";
  optimizer.optimizer.adamw.weight_decay_rate = 0.01;
  optimizer.optimizer.adamw.exclude_from_weight_decay = {"LayerNorm", "layer_norm", "bias"};
  optimizer.learning_rate.type = "polynomial";
  optimizer.learning_rate.polynomial.initial_learning_rate = 1e-4;
  optimizer.learning_rate.polynomial.end_learning_rate = 0.0;
  optimizer.warmup.type = "polynomial";
  optimizer.warmup.polynomial.warmup_steps = 10'000;
  return config;
}

std::vector<Experiment> byte_experiments() {
  return {
      {"lm_tiny", "decoder of 0.8 million parameters on text or drawn sums, 128 bytes", lm_tiny},
      {"lm_small", "decoder of 10.7 million parameters on text or drawn sums, 256 bytes", lm_small},
      {"bert_tiny", "BERT of 0.9 million parameters on text or drawn sums, 128 bytes", bert_tiny},
  };
}

std::vector<Experiment> model_garden_texts() {
  return {{"bert/pretraining", "Model Garden's BERT, base, on text", bert_pretraining}};
}

}  // namespace

std::vector<ExperimentGroup> text_experiments() {
  return {{.wing = "text", .place = 1, .make = byte_experiments},
          {.wing = "text", .place = 5, .make = model_garden_texts}};
}

std::vector<TaskKind> text_tasks() {
  return {{.name = "language_model",
           .place = 2,
           .make = []() -> std::shared_ptr<Task> { return std::make_shared<LanguageModelTask>(); }},
          {.name = "masked_language_model", .place = 3, .make = []() -> std::shared_ptr<Task> {
             return std::make_shared<MaskedLanguageModelTask>();
           }}};
}

}  // namespace cohort
