// SemanticSegmentationTask: puts together the data, the model and the loss that its fields ask for.
#include "cohort/models/semantic_segmentation.h"

#include <ATen/Functions.h>

#include "base/fail.h"
#include "cohort/models/image_models.h"
#include "cohort/models/pipeline_cut.h"
#include "cohort/train/iou.h"
#include "models/run/partitions.h"
#include "models/tasks/epoch.h"
#include "models/tasks/initial_weights.h"
#include "models/tasks/mesh_cuts.h"
#include "wings/vision/models/image_data.h"
#include "wings/vision/models/segmentation_data.h"
#include "wings/vision/models/segmentation_loss.h"

namespace cohort {

namespace {

constexpr const char* kHead = "outc";

void require_input_size(const SegmentationModelConfig& config) {
  const std::vector<int64_t>& size = config.input_size;
  constexpr int64_t kLargestSide = 65'535;  // of a JPEG
  const bool fits = size.size() == 3 && size[0] > 0 && size[0] <= kLargestSide && size[1] > 0 &&
                    size[1] <= kLargestSide && (size[2] == 1 || size[2] == 3);
  if (fits) return;
  fail<InvalidArgument>("[task] task.model.input_size is [", c10::Join(", ", size),
                        "], wanted height, width and 1 or 3 channels");
}

models::UNetOptions unet_options(const SegmentationModelConfig& config) {
  const auto& given = config.norm_activation;
  const auto& own = config.backbone.unet;
  models::UNetOptions options{.num_classes = config.num_classes,
                              .in_channels = config.input_size->at(2),
                              .filters = own.filters,
                              .levels = own.levels,
                              .dropout = own.dropout_rate,
                              .channels_last = config.channels_last,
                              .norm_activation = {.synchronized = given.use_sync_bn}};
  if (given.norm_epsilon >= 0.0) options.norm_activation.epsilon = given.norm_epsilon;
  if (given.norm_momentum >= 0.0) options.norm_activation.momentum = 1.0 - given.norm_momentum;
  if (!given.activation->empty()) options.norm_activation.activation = Activation::parse(*given.activation);
  return options;
}

}  // namespace

TaskData SemanticSegmentationTask::build_inputs(const RuntimeConfig& runtime, bool training) {
  require_input_size(model);
  const TaskSource source = open_pictures(*this, runtime, training);
  TaskData data{.train = training_pictures(source, *this, runtime),
                .validation = validation_pictures(source, *this, runtime),
                .description = source.description,
                .shard_train = train_data.sharding,
                .shard_validation = validation_data.sharding};
  data.steps_per_epoch = steps_per_epoch(train_data, source.train, source.description, "pictures", training);
  return data;
}

Example SemanticSegmentationTask::example_batch() const {
  require_input_size(model);
  const int64_t batch = train_data.global_batch_size;
  const int64_t height = model.input_size->at(0);
  const int64_t width = model.input_size->at(1);
  return {.x = at::zeros({}, dtype_of(train_data.dtype)).expand({batch, model.input_size->at(2), height, width}),
          .y = at::zeros({}, torch::kLong).expand({batch, height, width})};
}

std::vector<int64_t> SemanticSegmentationTask::input_partition_dims(bool training) const {
  return training ? partition_dims_of("task.train_input_partition_dims", train_input_partition_dims, /*planes=*/false)
                  : partition_dims_of("task.eval_input_partition_dims", eval_input_partition_dims, /*planes=*/false);
}

void SemanticSegmentationTask::check_sequence(const std::string& axis) const {
  refuse_sequence(axis, "this task has images",
                  "the axis space, with task.train_input_partition_dims, divides their rows and columns");
}

std::vector<std::string> SemanticSegmentationTask::pipeline_cut(int chunks) const {
  require_input_size(model);
  const models::UNetOptions options = unet_options(model);
  const int64_t side = int64_t{1} << options.levels;
  return layouts::pipeline_cut(*models::unet(options), at::zeros({1, options.in_channels, side, side}), chunks);
}

Model SemanticSegmentationTask::build_model() {
  initial_ = {.place = *init_checkpoint};
  if (!initial_.place.empty()) initial_.backbone_only = init_checkpoint_modules == "backbone";
  require_input_size(model);
  return Model([options = unet_options(model)] { return models::unet(options); }, "unet");
}

std::optional<int64_t> SemanticSegmentationTask::ignored() const {
  return losses.ignore_label >= 0 ? std::optional<int64_t>(losses.ignore_label) : std::nullopt;
}

std::optional<Loss> SemanticSegmentationTask::build_loss() {
  return segmentation_loss({.num_classes = model.num_classes,
                            .weight = losses.loss_weight,
                            .label_smoothing = losses.label_smoothing,
                            .class_weights = losses.class_weights,
                            .binary = losses.use_binary_cross_entropy,
                            .top_k = losses.top_k_percent_pixels,
                            .ignore_label = ignored()});
}

std::vector<Metric> SemanticSegmentationTask::build_metrics() {
  const int64_t classes = model.num_classes;
  std::vector<Metric> metrics = {
      pixel_accuracy(ignored()),
      MeanIoU(
          {.num_classes = classes, .ignore_class = ignored(), .sparse_y_pred = false, .axis = 1, .name = "mean_iou"})};
  if (!report_per_class_iou) return metrics;
  for (int64_t id = 0; id < classes; ++id) {
    metrics.push_back(IoU({.num_classes = classes,
                           .target_class_ids = {id},
                           .ignore_class = ignored(),
                           .sparse_y_pred = false,
                           .axis = 1,
                           .name = c10::str("iou_", id)}));
  }
  return metrics;
}

void SemanticSegmentationTask::initialize(Model& built) {
  if (initial_.place.empty()) return;
  start_from(initial_.place, initial_.backbone_only ? std::optional<std::string>(kHead) : std::nullopt, built);
}

}  // namespace cohort
