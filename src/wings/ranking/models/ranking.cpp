// RankingTask: puts together the clicks, DLRM and the loss that its fields ask for.
#include "cohort/models/ranking.h"

#include <ATen/Functions.h>

#include "base/fail.h"
#include "cohort/data/datasets.h"
#include "cohort/models/dlrm.h"
#include "cohort/train/basic_losses.h"
#include "cohort/train/basic_metrics.h"
#include "cohort/train/more_metrics.h"
#include "models/tasks/epoch.h"
#include "models/tasks/mesh_cuts.h"
#include "models/tasks/shared_fields.h"
#include "models/tasks/task_source.h"
#include "wings/ranking/data/clicks/clicks.h"

namespace cohort {

namespace {

constexpr int64_t kNumbers = datasets::kDenseFeatures;
constexpr std::size_t kTables = datasets::kCategories;

TaskSource open_clicks(const RankingTask& task, const RuntimeConfig& runtime, bool training) {
  const auto open = [](const std::string& from, const RankingDataConfig& /*data*/, double held_out) {
    return datasets::criteo(from, {.held_out = held_out});
  };
  const auto draw = [&] { return datasets::drawn_clicks({.seed = static_cast<uint64_t>(runtime.seed)}); };
  return open_source(task, training, {.missing = "there are no clicks", .builtin = "clicks"}, open, draw);
}

// Returns batches as the model takes them: log(x + 1) of the numbers, and for each category the row of its table, of
// which row 0 is for what is missing.
Dataset click_batches(const Dataset& clicks, const RankingDataConfig& data, const std::vector<int64_t>& vocab_sizes) {
  const torch::Tensor others = at::tensor(vocab_sizes, torch::kLong) - 1;
  return clicks.batch(data.global_batch_size, {.drop_remainder = data.drop_remainder}).map([others](Example batch) {
    torch::Tensor& numbers = batch.inputs.at(0).second;
    torch::Tensor& categories = batch.inputs.at(1).second;
    numbers = at::log1p(numbers.clamp_min(0.0));
    categories = at::where(categories.lt(0), at::zeros_like(categories), 1 + categories.remainder(others));
    return batch;
  });
}

void require_criteo(const RankingModelConfig& config) {
  if (config.num_dense_features != kNumbers || config.vocab_sizes->size() != kTables) {
    fail<InvalidArgument>("[task] task.model.num_dense_features is ", config.num_dense_features,
                          " and task.model.vocab_sizes has ", config.vocab_sizes->size(),
                          " sizes, but Criteo's format has ", kNumbers, " numbers and ", kTables, " categories");
  }
  for (const int64_t size : *config.vocab_sizes) {
    if (size >= 2) continue;
    fail<InvalidArgument>("[task] task.model.vocab_sizes has ", size,
                          ", wanted 2 or more: a row for what is missing, and others");
  }
}

}  // namespace

void RankingDataConfig::describe(ConfigFields& fields) {
  fields.add("input_path", input_path,
             "clicks: a file, or a folder of files, in the format of Criteo's data sets (--data_dir). Empty for "
             "validation_data: a part of train_data");
  describe_batches(*this, fields);
  fields.add("held_out", held_out, "part of the examples that is for validation");
  for (const char* relation : {"held_out >= 0", "held_out < 1"}) fields.restrict(relation);
}

void RankingModelConfig::describe(ConfigFields& fields) {
  fields.add("num_dense_features", num_dense_features, "numbers of an example");
  fields.add("vocab_sizes", vocab_sizes,
             "rows of each category's table; row 0 is for what is missing, values share the others");
  fields.add("embedding_dim", embedding_dim, "size of a category's vector");
  fields.add("bottom_mlp", bottom_mlp, "units of the dense layers of the numbers; the last is embedding_dim");
  fields.add("top_mlp", top_mlp, "units of the dense layers of the products; the last is 1");
  fields.add("interaction", interaction, "what becomes of pairs of vectors: their products", {"dot"});
  fields.restrict("embedding_dim > 0");
}

models::DlrmOptions RankingModelConfig::options() const {
  return {.num_dense_features = num_dense_features,
          .vocab_sizes = vocab_sizes,
          .embedding_dim = embedding_dim,
          .bottom_mlp = bottom_mlp,
          .top_mlp = top_mlp};
}

void RankingTask::describe(ConfigFields& fields) {
  fields.nest("model", model);
  fields.nest("train_data", train_data);
  fields.nest("validation_data", validation_data);
  fields.add("loss.label_smoothing", label_smoothing, "part of each label that is spread over both");
  for (const char* relation : {"loss.label_smoothing >= 0", "loss.label_smoothing <= 1"}) fields.restrict(relation);
}

TaskData RankingTask::build_inputs(const RuntimeConfig& runtime, bool training) {
  require_criteo(model);
  const TaskSource source = open_clicks(*this, runtime, training);
  const auto seed = static_cast<uint64_t>(train_data.seed >= 0 ? *train_data.seed : *runtime.seed);
  const Dataset shuffled = source.train.shuffle(train_data.shuffle_buffer_size, {.seed = seed});
  TaskData data{
      .train = ahead(click_batches(shuffled, train_data, model.vocab_sizes).repeat(), train_data.prefetch_buffer_size),
      .validation = ahead(click_batches(source.validation, validation_data, model.vocab_sizes),
                          validation_data.prefetch_buffer_size),
      .description = source.description,
      .shard_train = train_data.sharding,
      .shard_validation = validation_data.sharding};
  data.steps_per_epoch = steps_per_epoch(train_data, source.train, source.description, "clicks", training);
  return data;
}

Example RankingTask::example_batch() const {
  const int64_t batch = train_data.global_batch_size;
  return {.y = at::zeros({}).expand({batch}),
          .inputs = {{"dense_features", at::zeros({}).expand({batch, kNumbers})},
                     {"sparse_features", at::zeros({}, torch::kLong).expand({batch, static_cast<int64_t>(kTables)})}}};
}

LayoutMap RankingTask::mesh_layout(const std::string& axis, const MeshCuts& cuts) const {
  if (cuts.mlps && model.bottom_mlp->size() < 2 && model.top_mlp->size() < 2) {
    fail<InvalidArgument>(
        "[task] --mlp_parallel=true: task.model.bottom_mlp and task.model.top_mlp have a single layer ",
        "each, which \"", axis, "\" does not divide, wanted two or more layers in one of them");
  }
  return layouts::recommender(model.options(), axis, {.cuts_vocabulary = cuts.vocabulary, .cuts_mlps = cuts.mlps});
}

std::vector<std::string> RankingTask::pipeline_cut(int chunks) const {
  fail<InvalidArgument>(
      "[task] the mesh is to divide layers into ", chunks,
      " chunks, but its model has no places for that, as language models, image classifiers and U-Nets "
      "have; a mesh whose axes carry the batch would fit");
}

void RankingTask::check_sequence(const std::string& axis) const {
  refuse_sequence(axis, "this task has clicks", "the axes batch and model divide examples and tables");
}

Model RankingTask::build_model() {
  const models::DlrmOptions options = model.options();
  return Model([options] { return models::dlrm(options); }, "dlrm");
}

std::optional<Loss> RankingTask::build_loss() {
  return BinaryCrossentropy({.from_logits = true, .label_smoothing = label_smoothing});
}

std::vector<Metric> RankingTask::build_metrics() {
  return {AUC({.from_logits = true, .name = "auc"}), BinaryAccuracy({.threshold = 0.0, .name = "accuracy"})};
}

}  // namespace cohort
