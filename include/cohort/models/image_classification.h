// ImageClassificationTask: classifies images of any data that the library reads, with any of its models. The names of
// the fields are those of Model Garden's image classification (official/vision/configs/image_classification.py).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cohort/models/experiment.h"

namespace cohort {

// The source of the images and their augmentation. docs/settings.md has the meaning of each field.
struct ImageDataConfig {
  Setting<std::string> input_path;
  Setting<std::string> tfds_name;
  Setting<std::string> tfds_data_dir;
  Setting<std::string> tfds_split;
  Setting<int64_t> global_batch_size = 128;
  Setting<bool> is_training = true;
  Setting<bool> drop_remainder = true;
  Setting<int64_t> shuffle_buffer_size = 10'000;
  Setting<bool> cache = false;
  Setting<int64_t> prefetch_buffer_size = -1;
  Setting<int64_t> seed = -1;
  Setting<bool> sharding = true;
  Setting<std::string> dtype = "float32";
  Setting<bool> deterministic = true;
  Setting<std::string> file_type = "tfrecord";
  Setting<std::string> image_field_key = "image/encoded";
  Setting<std::string> label_field_key = "image/class/label";
  Setting<int64_t> cycle_length = 0;
  Setting<int64_t> block_length = 1;
  Setting<bool> skip_damaged = false;
  Setting<double> held_out = 0.2;
  Setting<std::string> aug_crop = "resized";
  Setting<int64_t> aug_crop_padding = 4;
  Setting<std::string> aug_crop_padding_mode = "constant";
  Setting<double> aug_min_area = 0.08;
  Setting<bool> aug_rand_hflip = true;
  Setting<double> brightness = 0.0, contrast = 0.0, saturation = 0.0, hue = 0.0;
  Setting<std::string> aug_policy;
  Setting<int64_t> randaug_magnitude = 10;
  struct {
    Setting<std::string> type;
    struct {
      Setting<int64_t> num_layers = 2;
      Setting<int64_t> magnitude = 10;
      Setting<std::vector<std::string>> exclude_ops;
      Setting<double> translate_const = 10.0;
      Setting<double> cutout_const = 40.0;
      Setting<double> magnitude_std = 0.0;
    } randaug;
  } aug_type;  // Model Garden's group of further changes
  struct {
    Setting<double> mixup_alpha = 0.0, cutmix_alpha = 0.0;
    Setting<double> prob = 1.0;
    Setting<double> switch_prob = 0.5;
    Setting<double> label_smoothing = 0.0;
  } mixup_and_cutmix;  // Model Garden's group of mixed images
  Setting<double> center_crop_fraction = 0.875;
  Setting<bool> images_on_device = false;

  // Adds the fields with their meanings.
  void describe(ConfigFields& fields);
};

// The model, and the preparation of its input. docs/settings.md has the meaning of each field.
struct ImageModelConfig {
  Setting<int64_t> num_classes = 1000;
  Setting<std::vector<int64_t>> input_size = {224, 224, 3};
  Setting<std::vector<double>> input_mean = {0.485, 0.456, 0.406};
  Setting<std::vector<double>> input_stddev = {0.229, 0.224, 0.225};
  Setting<double> dropout_rate = 0.0;
  Setting<bool> channels_last = true;
  Setting<bool> remat = false;
  Setting<std::string> kernel_initializer;
  struct {
    Setting<std::string> activation;
    Setting<bool> use_sync_bn = false;
    Setting<double> norm_momentum = -1.0;
    Setting<double> norm_epsilon = -1.0;
  } norm_activation;  // changes to batch norms and activation
  struct {
    Setting<std::string> type = "resnet";
    struct {
      Setting<int64_t> model_id = 50;
      Setting<bool> zero_init_residual = false;
    } resnet;
    struct {
      Setting<int64_t> model_id = 20;
      Setting<bool> zero_init_residual = false;
    } resnet_cifar;
    struct {
      Setting<std::string> model_id = "b0";
      Setting<double> stochastic_depth_drop_rate = 0.2;
      Setting<double> se_ratio = 0.25;
    } efficientnet;
    struct {
      Setting<std::string> model_name = "vit-b16";
      Setting<int64_t> patch_size = 0;
      Setting<int64_t> representation_size = 0;
      Setting<double> init_stochastic_depth_rate = 0.0;
      Setting<bool> original_init = true;
    } vit;
  } backbone;  // the model by its type, of which only its own group counts

  // Adds the fields with their meanings.
  void describe(ConfigFields& fields);
  // Returns the number of colour channels.
  int64_t channels() const { return input_size->at(2); }
  // Returns whether the model takes grey images as [height, width], without a dimension for the channel.
  bool takes_planes() const { return channels() == 1 && (backbone.type == "mlp" || backbone.type == "cnn"); }
};

// A task for experiments with images and one class each. Change its fields before you hand it over.
class ImageClassificationTask : public Task {
 public:
  ImageModelConfig model;                                                          // the group "model"
  ImageDataConfig train_data;                                                      // the group "train_data"
  ImageDataConfig validation_data{.is_training = false, .drop_remainder = false};  // the group "validation_data"
  Setting<double> label_smoothing = 0.0;
  Setting<double> l2_decay = 0.0;
  Setting<double> loss_weight = 1.0;
  Setting<bool> one_hot = false;
  Setting<bool> soft_labels_of_data = false;
  Setting<int64_t> top_k = 5;
  Setting<std::string> init_checkpoint;
  Setting<std::string> init_checkpoint_modules = "all";
  Setting<bool> freeze_backbone = false;
  Setting<int64_t> freeze_backbone_steps = 0;
  Setting<std::vector<int64_t>> train_input_partition_dims;
  Setting<std::vector<int64_t>> eval_input_partition_dims;
  std::string builtin_data;  // the data without a folder: "digits"; empty: none

  void describe(ConfigFields& fields) override;

  TaskData build_inputs(const RuntimeConfig& runtime, bool training) override;
  Example example_batch() const override;
  std::vector<int64_t> input_partition_dims(bool training) const override;
  LayoutMap mesh_layout(const std::string& axis, const MeshCuts& cuts) const override;
  std::vector<std::string> pipeline_cut(int chunks) const override;
  void check_sequence(const std::string& axis) const override;
  Model build_model() override;
  std::optional<Loss> build_loss() override;
  std::vector<Metric> build_metrics() override;
  double l2_weight_decay() const override { return l2_decay; }
  // Takes the weights of a safetensors file or of a checkpoint's folder; with the modules "backbone" all but the
  // classifier's.
  void initialize(Model& model) override;
  std::vector<int64_t> stages() const override;
  void before_stage(std::size_t stage, Model& model) override;

 private:
  // The weights that the model that was built last starts from.
  struct Initial {
    std::filesystem::path place;
    bool backbone_only = false;
  };

  bool soft_labels() const;
  double smoothing() const;
  std::string head() const;

  Initial initial_;
};

}  // namespace cohort
