// Segmentation as an experiment's task: a U-Net, pictures with a class for each pixel, with the names of Model Garden's
// semantic_segmentation.
#pragma once

#include <string>
#include <vector>

#include "cohort/models/experiment.h"

namespace cohort {

// The data, and how the pictures are changed. docs/settings.md has the meaning of each field.
struct SegmentationDataConfig {
  Setting<std::string> input_path;
  Setting<int64_t> global_batch_size = 16;
  Setting<bool> is_training = true;
  Setting<bool> drop_remainder = true;
  Setting<int64_t> shuffle_buffer_size = 1000;
  Setting<bool> cache = false;
  Setting<int64_t> prefetch_buffer_size = -1;
  Setting<int64_t> seed = -1;
  Setting<bool> sharding = true;
  Setting<std::string> dtype = "float32";
  Setting<bool> deterministic = true;
  Setting<double> held_out = 0.2;
  Setting<bool> aug_rand_hflip = true;
  Setting<bool> resize_eval_groundtruth = true;

  // Adds the fields with their meanings.
  void describe(ConfigFields& fields);
};

// The model, and the preparation of its input. docs/settings.md has the meaning of each field.
struct SegmentationModelConfig {
  Setting<int64_t> num_classes = 2;
  Setting<std::vector<int64_t>> input_size = {512, 512, 3};
  Setting<std::vector<double>> input_mean = {0.485, 0.456, 0.406};
  Setting<std::vector<double>> input_stddev = {0.229, 0.224, 0.225};
  Setting<bool> channels_last = true;
  struct {
    Setting<std::string> activation;
    Setting<bool> use_sync_bn = false;
    Setting<double> norm_momentum = -1.0;
    Setting<double> norm_epsilon = -1.0;
  } norm_activation;  // changes to batch norms and activation
  struct {
    Setting<std::string> type = "unet";
    struct {
      Setting<int64_t> filters = 64;
      Setting<int64_t> levels = 4;
      Setting<double> dropout_rate = 0.0;
    } unet;
  } backbone;  // the model by its type

  // Adds the fields with their meanings.
  void describe(ConfigFields& fields);
};

// The loss of a pixel. docs/settings.md has the meaning of each field.
struct SegmentationLossConfig {
  Setting<double> loss_weight = 1.0;
  Setting<double> label_smoothing = 0.0;
  Setting<int64_t> ignore_label = 255;
  Setting<bool> gt_is_matting_map = false;
  Setting<std::vector<double>> class_weights;
  Setting<double> l2_weight_decay = 0.0;
  Setting<bool> use_groundtruth_dimension = true;
  Setting<bool> use_binary_cross_entropy = false;
  Setting<double> top_k_percent_pixels = 1.0;

  // Adds the fields with their meanings.
  void describe(ConfigFields& fields);
};

// A task for experiments with a class for each pixel. Change its fields before you hand it over.
class SemanticSegmentationTask : public Task {
 public:
  SegmentationModelConfig model;                                                          // the group "model"
  SegmentationDataConfig train_data;                                                      // the group "train_data"
  SegmentationDataConfig validation_data{.is_training = false, .drop_remainder = false};  // the group "validation_data"
  SegmentationLossConfig losses;                                                          // the group "losses"
  Setting<bool> report_per_class_iou = false;
  Setting<std::string> init_checkpoint;
  Setting<std::string> init_checkpoint_modules = "all";
  Setting<std::vector<int64_t>> train_input_partition_dims;
  Setting<std::vector<int64_t>> eval_input_partition_dims;
  std::string builtin_data;  // the data without a folder: "shapes"; empty: none

  void describe(ConfigFields& fields) override;

  TaskData build_inputs(const RuntimeConfig& runtime, bool training) override;
  Example example_batch() const override;
  std::vector<int64_t> input_partition_dims(bool training) const override;
  std::vector<std::string> pipeline_cut(int chunks) const override;
  void check_sequence(const std::string& axis) const override;
  Model build_model() override;
  std::optional<Loss> build_loss() override;
  std::vector<Metric> build_metrics() override;
  double l2_weight_decay() const override { return losses.l2_weight_decay; }
  // Takes the weights of a safetensors file or of a checkpoint's folder; with the modules "backbone" all but the last
  // convolution's.
  void initialize(Model& model) override;

 private:
  // The weights that the model that was built last starts from.
  struct Initial {
    std::filesystem::path place;
    bool backbone_only = false;
  };

  std::optional<int64_t> ignored() const;

  Initial initial_;
};

}  // namespace cohort
