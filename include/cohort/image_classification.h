// ImageClassificationTask: classifying images of any data that the library reads, with any of its models. Field names
// are those of Model Garden's image classification (official/vision/configs/image_classification.py).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cohort/experiment.h"

namespace cohort {

struct ImageDataConfig {
  std::string input_path;
  std::string tfds_name;
  std::string tfds_data_dir;
  std::string tfds_split;
  int64_t global_batch_size = 128;
  bool is_training = true;
  bool drop_remainder = true;
  int64_t shuffle_buffer_size = 10'000;
  bool cache = false;
  int64_t prefetch_buffer_size = -1;
  int64_t seed = -1;
  bool sharding = true;
  std::string dtype = "float32";
  bool deterministic = true;
  std::string file_type = "tfrecord";
  std::string image_field_key = "image/encoded";
  std::string label_field_key = "image/class/label";
  int64_t cycle_length = 0;
  int64_t block_length = 1;
  bool skip_damaged = false;
  double held_out = 0.2;
  std::string aug_crop = "resized";
  int64_t aug_crop_padding = 4;
  std::string aug_crop_padding_mode = "constant";
  double aug_min_area = 0.08;
  bool aug_rand_hflip = true;
  double brightness = 0.0, contrast = 0.0, saturation = 0.0, hue = 0.0;
  std::string aug_policy;
  int64_t randaug_num_layers = 2;
  int64_t randaug_magnitude = 9;
  double mixup_alpha = 0.0;
  double cutmix_alpha = 0.0;
  struct {
    std::string type;
    struct {
      int64_t num_layers = 2;
      int64_t magnitude = 10;
      std::vector<std::string> exclude_ops;
      double translate_const = 10.0;
      double cutout_const = 40.0;
      double magnitude_std = 0.0;
    } randaug;
  } aug_type;
  struct {
    double mixup_alpha = 0.0, cutmix_alpha = 0.0;
    double prob = 1.0;
    double switch_prob = 0.5;
    double label_smoothing = 0.0;
  } mixup_and_cutmix;
  double center_crop_fraction = 0.875;

  void describe(ConfigFields& fields);
};

struct ImageModelConfig {
  int64_t num_classes = 1000;
  std::vector<int64_t> input_size = {224, 224, 3};  // height, width, channels
  std::vector<double> input_mean = {0.485, 0.456, 0.406};
  std::vector<double> input_stddev = {0.229, 0.224, 0.225};
  double dropout_rate = 0.0;
  bool channels_last = true;
  std::string kernel_initializer;
  // Negative and empty: the model's own.
  struct {
    std::string activation;
    bool use_sync_bn = false;
    double norm_momentum = -1.0;
    double norm_epsilon = -1.0;
  } norm_activation;
  struct {
    std::string type = "resnet";
    struct {
      int64_t model_id = 50;
      bool zero_init_residual = false;
    } resnet;
    struct {
      int64_t model_id = 20;
      bool zero_init_residual = false;
    } resnet_cifar;
    struct {
      std::string model_id = "b0";
      double stochastic_depth_drop_rate = 0.2;
      double se_ratio = 0.25;
    } efficientnet;
    struct {
      std::string model_name = "vit-b16";
      int64_t patch_size = 0;  // 0: what the name says
      int64_t representation_size = 0;
      double init_stochastic_depth_rate = 0.0;
      bool original_init = true;
    } vit;
  } backbone;

  void describe(ConfigFields& fields);
  int64_t channels() const { return input_size.at(2); }
  // Whether the model takes grey images as [height, width], without a dimension for the channel.
  bool takes_planes() const { return channels() == 1 && (backbone.type == "mlp" || backbone.type == "cnn"); }
};

class ImageClassificationTask : public Task {
 public:
  ImageModelConfig model;
  ImageDataConfig train_data;
  ImageDataConfig validation_data{.is_training = false, .drop_remainder = false};
  double label_smoothing = 0.0;
  double l2_decay = 0.0;
  double loss_weight = 1.0;
  bool one_hot = false;
  bool soft_labels_of_data = false;
  int64_t top_k = 5;
  std::string init_checkpoint;
  std::string init_checkpoint_modules = "all";
  bool freeze_backbone = false;
  int64_t freeze_backbone_steps = 0;
  std::string builtin_data;  // what there is without a folder: "digits"; empty: nothing

  void describe(ConfigFields& fields) override;
  void set_data(Config& config, const std::string& folder, const std::string& origin) override;
  void set_batch(Config& config, int64_t size, const std::string& origin) override;

  TaskData build_inputs(const RuntimeConfig& runtime, bool training) override;
  Model build_model() override;
  Loss build_loss() override;
  std::vector<Metric> build_metrics() override;
  double l2_weight_decay() const override { return l2_decay; }
  // From a safetensors file or a checkpoint's folder; with the modules "backbone" all but the classifier.
  void initialize(Model& model) override;
  std::vector<int64_t> stages() const override;
  void before_stage(std::size_t stage, Model& model) override;

 private:
  bool soft_labels() const;
  double smoothing() const;
  std::string head() const;
};

}  // namespace cohort
