// The descriptions of the fields of SemanticSegmentationTask.
#include "cohort/models/semantic_segmentation.h"
#include "models/tasks/shared_fields.h"

namespace cohort {

void SegmentationDataConfig::describe(ConfigFields& fields) {
  fields.add("input_path", input_path,
             "folder with the folders images, of JPEG and PNG files, and masks, of a grey PNG of the same name for "
             "each, whose values are the classes (--data_dir). Empty for validation_data: a part of train_data");
  describe_batches(*this, fields);
  describe_decoding(*this, fields);
  fields.add("held_out", held_out, "part of a folder that is for validation");
  fields.add("aug_rand_hflip", aug_rand_hflip, "whether half of the images are flipped left to right");
  fields.add("resize_eval_groundtruth", resize_eval_groundtruth,
             "whether masks are resized to the size of the model's input for an evaluation");
  for (const char* relation : {"held_out >= 0", "held_out < 1", "resize_eval_groundtruth == true"}) {
    fields.restrict(relation);
  }
}

void SegmentationModelConfig::describe(ConfigFields& fields) {
  fields.add("num_classes", num_classes, "classes of a pixel");
  fields.add("input_size", input_size,
             "height, width and channels of the input, to which images and masks are resized");
  fields.add("input_mean", input_mean, "mean of each channel, subtracted from the image, whose values are from 0 to 1");
  fields.add("input_stddev", input_stddev, "standard deviation of each channel, by which the image is divided then");
  fields.add("channels_last", channels_last,
             "whether the model computes with the channels last in memory: faster, mostly");
  describe_norm_activation(norm_activation, "activation of the model; empty: relu", fields);
  fields.group("backbone", [this](ConfigFields& inner) {
    inner.add("type", backbone.type, "the model", {"unet"});
    inner.group("unet", [this](ConfigFields& own) {
      own.add("filters", backbone.unet.filters, "channels of the first level; each level below has twice as many");
      own.add("levels", backbone.unet.levels, "number of times that height and width are halved");
      own.add("dropout_rate", backbone.unet.dropout_rate, "rate of dropout on the lowest level");
    });
  });
  for (const char* relation : {"num_classes > 0", "backbone.unet.filters > 0", "backbone.unet.levels > 0",
                               "backbone.unet.dropout_rate >= 0", "backbone.unet.dropout_rate < 1"}) {
    fields.restrict(relation);
  }
}

void SegmentationLossConfig::describe(ConfigFields& fields) {
  fields.add("loss_weight", loss_weight, "factor of the loss");
  fields.add("label_smoothing", label_smoothing, "part of each label that is spread over all classes");
  fields.add("ignore_label", ignore_label,
             "the value of a mask that stands for no class: such pixels do not count; negative: there is none");
  fields.add("gt_is_matting_map", gt_is_matting_map, "whether masks are degrees of the second of two classes");
  fields.add("class_weights", class_weights, "factor of the loss of each class' pixels; empty: 1 for all");
  fields.add("l2_weight_decay", l2_weight_decay,
             "decay of the weights, added to the gradient; not a part of the loss that is shown");
  fields.add("use_groundtruth_dimension", use_groundtruth_dimension,
             "whether logits are resized to the size of the masks, which they have");
  fields.add("use_binary_cross_entropy", use_binary_cross_entropy,
             "whether each class is told from all others by itself, instead of one of all");
  fields.add("top_k_percent_pixels", top_k_percent_pixels,
             "part of the batch's pixels that counts, of those with the largest loss; 1: all");
  for (const char* relation : {"loss_weight > 0", "label_smoothing >= 0", "label_smoothing <= 1",
                               "l2_weight_decay >= 0", "top_k_percent_pixels > 0", "top_k_percent_pixels <= 1",
                               "gt_is_matting_map == false", "use_groundtruth_dimension == true"}) {
    fields.restrict(relation);
  }
}

void SemanticSegmentationTask::describe(ConfigFields& fields) {
  fields.nest("model", model);
  fields.nest("train_data", train_data);
  fields.nest("validation_data", validation_data);
  fields.nest("losses", losses);
  fields.group("evaluation", [this](ConfigFields& inner) {
    inner.add("report_per_class_iou", report_per_class_iou, "whether the metrics have the IoU of each class, too");
  });
  describe_initial_weights(*this, fields);
  describe_partitions(*this, fields);
}

}  // namespace cohort
