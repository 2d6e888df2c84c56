// ImageClassificationTask: puts together the data, the model and the loss that its fields ask for.
#include "cohort/models/image_classification.h"

#include <algorithm>

#include "base/fail.h"
#include "cohort/models/image_models.h"
#include "cohort/models/pipeline_cut.h"
#include "models/run/partitions.h"
#include "models/tasks/epoch.h"
#include "models/tasks/initial_weights.h"
#include "models/tasks/mesh_cuts.h"
#include "wings/vision/models/image_data.h"
#include "wings/vision/models/image_model.h"
#include "wings/vision/models/mnist.h"

namespace cohort {

namespace {

constexpr int64_t kLargestSide = 65'535;  // of a JPEG

void require_input_size(const ImageModelConfig& config) {
  const std::vector<int64_t>& size = config.input_size;
  const auto fits = [](int64_t number) { return number > 0 && number <= kLargestSide; };
  if (size.size() == 3 && std::all_of(size.begin(), size.end(), fits)) return;
  fail<InvalidArgument>("[task] task.model.input_size is [", c10::Join(", ", size),
                        "], wanted height, width and channels, 1 to ", kLargestSide);
}

// Returns whether the model is one of mnist.h, a Sequential.
bool has_digit_layers(const ImageModelConfig& config) {
  return config.backbone.type == "mlp" || config.backbone.type == "cnn";
}

}  // namespace

TaskData ImageClassificationTask::build_inputs(const RuntimeConfig& runtime, bool training) {
  require_input_size(model);
  const ImageSource source = open_images(*this, runtime, training);
  if (source.num_classes > model.num_classes) {
    fail<InvalidArgument>("[task] ", source.description, " has ", source.num_classes,
                          " classes, but task.model.num_classes is ", model.num_classes);
  }
  TaskData data{.validation = validation_batches(source, *this, runtime, soft_labels()),
                .description = source.description,
                .shard_train = train_data.sharding,
                .shard_validation = validation_data.sharding};
  data.train = training_batches(source, *this, runtime, soft_labels());
  data.steps_per_epoch = steps_per_epoch(train_data, source.train, source.description, "examples", training);
  return data;
}

Example ImageClassificationTask::example_batch() const {
  require_input_size(model);
  const int64_t batch = train_data.global_batch_size;
  std::vector<int64_t> images = {batch, model.channels(), model.input_size->at(0), model.input_size->at(1)};
  if (model.takes_planes()) images.erase(images.begin() + 1);
  const torch::Tensor labels =
      soft_labels() ? at::zeros({}).expand({batch, model.num_classes}) : at::zeros({}, torch::kLong).expand({batch});
  return {.x = at::zeros({}, image_dtype(train_data)).expand(images), .y = labels};
}

std::vector<int64_t> ImageClassificationTask::input_partition_dims(bool training) const {
  require_input_size(model);
  return training
             ? partition_dims_of("task.train_input_partition_dims", train_input_partition_dims, model.takes_planes())
             : partition_dims_of("task.eval_input_partition_dims", eval_input_partition_dims, model.takes_planes());
}

LayoutMap ImageClassificationTask::mesh_layout(const std::string& axis, const MeshCuts& cuts) const {
  if (model.backbone.type != "vit") return {};
  require_whole_mlps(axis, cuts);
  if (cuts.vocabulary) {
    fail<InvalidArgument>("[task] --vocab_parallel=true: an image classifier has no vocabulary that \"", axis,
                          "\" could divide; without it, the mesh divides attention by heads and hidden layers");
  }
  return layouts::transformer(models::VisionTransformerOptions(), axis);
}

void ImageClassificationTask::check_sequence(const std::string& axis) const {
  refuse_sequence(axis, "this task has images",
                  "the axis space, with task.train_input_partition_dims, divides their rows and columns");
}

std::vector<std::string> ImageClassificationTask::pipeline_cut(int chunks) const {
  require_input_size(model);
  if (has_digit_layers(model)) return {};
  require_kept_blocks(model.remat);
  if (model.backbone.type == "vit") return layouts::pipeline_cut(vit_options(model), chunks);
  constexpr int64_t kSide = 64;
  return layouts::pipeline_cut(*build_backbone(model, head()), at::zeros({1, model.channels(), kSide, kSide}), chunks);
}

Model ImageClassificationTask::build_model() {
  initial_ = {.place = *init_checkpoint};
  if (!initial_.place.empty()) initial_.backbone_only = init_checkpoint_modules == "backbone";
  require_input_size(model);
  if (has_digit_layers(model)) {
    Sequential made = model.backbone.type == "mlp" ? mnist_mlp(model.num_classes) : mnist_cnn(model.num_classes);
    if (model.remat) {
      fail<InvalidArgument>("[task] task.model.remat is true, but ", model.backbone.type,
                            " has no blocks to compute again; leave it out");
    }
    const int64_t height = model.input_size->at(0);
    const int64_t width = model.input_size->at(1);
    if (model.takes_planes()) {
      made.build({height, width});
    } else {
      made.build({model.channels(), height, width});
    }
    return made;
  }
  return Model([this] { return build_backbone(model, head()); }, model.backbone.type);
}

std::optional<Loss> ImageClassificationTask::build_loss() {
  Loss loss = soft_labels() ? CategoricalCrossentropy({.from_logits = true, .label_smoothing = smoothing()})
                            : SparseCategoricalCrossentropy({.from_logits = true});
  if (loss_weight == 1.0) return loss;
  return Loss(loss.name(), [loss, weight = loss_weight.get()](const torch::Tensor& y, const torch::Tensor& prediction) {
    return weight * loss.per_example(y, prediction);
  });
}

std::vector<Metric> ImageClassificationTask::build_metrics() {
  std::vector<Metric> metrics;
  metrics.push_back(soft_labels() ? CategoricalAccuracy({.name = "accuracy"})
                                  : SparseCategoricalAccuracy({.name = "accuracy"}));
  if (model.num_classes <= 2 || top_k <= 1 || top_k >= model.num_classes) return metrics;
  const TopKAccuracyOptions options{.k = top_k, .name = c10::str("top_", top_k, "_accuracy")};
  metrics.push_back(soft_labels() ? TopKCategoricalAccuracy(options) : SparseTopKCategoricalAccuracy(options));
  return metrics;
}

bool ImageClassificationTask::soft_labels() const {
  const bool soft = smoothing() > 0.0 || mixing_of(train_data).any();  // reads all of them
  return one_hot || soft;
}

double ImageClassificationTask::smoothing() const {
  const double own = train_data.mixup_and_cutmix.label_smoothing;
  if (!soft_labels_of_data) {
    if (own == 0.0) return label_smoothing;
    fail<InvalidArgument>(
        "[task] task.train_data.mixup_and_cutmix.label_smoothing is ", own,
        ", which counts with task.losses.soft_labels only; without, task.losses.label_smoothing does");
  }
  if (!mixing_of(train_data).any()) {
    fail<InvalidArgument>(
        "[task] task.losses.soft_labels is true: labels that task.train_data.mixup_and_cutmix makes, which is off");
  }
  if (label_smoothing == 0.0 || label_smoothing == own) return own;
  fail<InvalidArgument>("[task] task.losses.label_smoothing is ", label_smoothing,
                        ", but with task.losses.soft_labels task.train_data.mixup_and_cutmix.label_smoothing counts, ",
                        own);
}

std::string ImageClassificationTask::head() const {
  const std::string& type = model.backbone.type;
  if (type == "efficientnet") return "classifier";
  if (type == "vit") return "heads";
  if (has_digit_layers(model)) return "";
  return "fc";
}

void ImageClassificationTask::initialize(Model& built) {
  if (initial_.place.empty()) return;
  start_from(initial_.place, initial_.backbone_only ? std::optional(head()) : std::nullopt, built);
}

// A new stage begins where a backbone thaws.
std::vector<int64_t> ImageClassificationTask::stages() const {
  if (freeze_backbone || freeze_backbone_steps == 0) return {};
  return {freeze_backbone_steps};
}

void ImageClassificationTask::before_stage(std::size_t stage, Model& built) {
  const bool frozen = freeze_backbone || (stage == 0 && !stages().empty());
  if (frozen && head().empty()) {
    fail<InvalidArgument>("[task] task.", freeze_backbone ? "freeze_backbone" : "freeze_backbone_steps", ": the model ",
                          model.backbone.type, " has no backbone");
  }
  for (const ModelLayer& layer : built.layers()) layer.set_trainable(!frozen || layer.name() == head());
}

}  // namespace cohort
