#include "wings/vision/models/model_garden.h"

#include <array>

#include "base/fail.h"
#include "cohort/models/image_classification.h"

namespace cohort {

namespace {

constexpr int64_t kImages = 1'281'167;  // training images of ImageNet
constexpr int64_t kValidationImages = 50'000;
constexpr int64_t kBatch = 4096;
constexpr int64_t kEpoch = kImages / kBatch;
constexpr int64_t kBackgroundAndClasses = 1001;  // the records count classes from 1

struct ImageNet {
  std::shared_ptr<ImageClassificationTask> task = std::make_shared<ImageClassificationTask>();
  TrainerConfig trainer;

  explicit ImageNet(int64_t batch = kBatch, int64_t image_size = 224) {
    task->model.num_classes = kBackgroundAndClasses;
    task->model.input_size = {image_size, image_size, 3};
    task->model.kernel_initializer = "random_uniform";
    task->one_hot = true;
    task->validation_data.drop_remainder = true;
    for (ImageDataConfig* data : {&task->train_data, &task->validation_data}) data->global_batch_size = batch;
    const int64_t epoch = kImages / batch;
    for (Setting<int64_t>* interval : {&trainer.steps_per_loop, &trainer.summary_interval, &trainer.checkpoint_interval,
                                       &trainer.validation_interval}) {
      *interval = epoch;
    }
    trainer.validation_steps = kValidationImages / batch;
  }

  void cosine(double rate, int64_t steps) {
    trainer.train_steps = steps;
    trainer.optimizer_config.learning_rate.type = "cosine";
    trainer.optimizer_config.learning_rate.cosine.initial_learning_rate = rate;
    trainer.optimizer_config.learning_rate.cosine.decay_steps = steps;
  }
  void warm_up(int64_t steps) {
    trainer.optimizer_config.warmup.type = "linear";
    trainer.optimizer_config.warmup.linear.warmup_steps = steps;
  }
  void adamw(double weight_decay) {
    OptimizerConfig::Rule& rule = trainer.optimizer_config.optimizer;
    rule.type = "adamw";
    rule.adamw.weight_decay_rate = weight_decay;
    rule.adamw.include_in_weight_decay = ".*(kernel|weight):0$";
    rule.adamw.gradient_clip_norm = 0.0;
  }
  void vit(const char* kernel_initializer) {
    task->model.backbone.type = "vit";
    task->model.kernel_initializer = kernel_initializer;
  }
  ExperimentConfig config() const { return {.task = task, .trainer = trainer}; }
};

ExperimentConfig resnet_imagenet() {
  ImageNet recipe;
  recipe.task->model.norm_activation.norm_momentum = 0.9;
  recipe.task->model.norm_activation.norm_epsilon = 1e-5;
  recipe.task->l2_decay = 1e-4;
  OptimizerConfig& optimizer = recipe.trainer.optimizer_config;
  optimizer.optimizer.sgd.momentum = 0.9;
  optimizer.learning_rate.type = "stepwise";
  optimizer.learning_rate.stepwise.boundaries = {30 * kEpoch, 60 * kEpoch, 80 * kEpoch};
  optimizer.learning_rate.stepwise.values = {1.6, 0.16, 0.016, 0.0016};
  recipe.warm_up(5 * kEpoch);
  recipe.trainer.train_steps = 90 * kEpoch;
  return recipe.config();
}

ExperimentConfig vit_imagenet_pretrain() {
  ImageNet recipe;
  recipe.vit("zeros");
  recipe.task->model.backbone.vit.representation_size = 768;
  recipe.adamw(0.3);
  recipe.cosine(0.003, 300 * kEpoch);
  recipe.warm_up(10'000);
  return recipe.config();
}

ExperimentConfig vit_imagenet_finetune() {
  ImageNet recipe(/*batch=*/512, /*image_size=*/384);
  recipe.vit("random_uniform");
  recipe.trainer.optimizer_config.optimizer.sgd.momentum = 0.9;
  recipe.trainer.optimizer_config.optimizer.global_clipnorm = 1.0;
  recipe.cosine(0.003, 20'000);
  return recipe.config();
}

ExperimentConfig deit_imagenet_pretrain() {
  ImageNet recipe;
  recipe.vit("zeros");
  auto& vit = recipe.task->model.backbone.vit;
  vit.representation_size = 768;
  vit.init_stochastic_depth_rate = 0.1;
  vit.original_init = false;
  ImageDataConfig& data = recipe.task->train_data;
  data.aug_type.type = "randaug";
  data.aug_type.randaug.magnitude = 9;
  data.aug_type.randaug.exclude_ops = {"Cutout"};
  data.mixup_and_cutmix.mixup_alpha = 0.8;
  data.mixup_and_cutmix.cutmix_alpha = 1.0;
  data.mixup_and_cutmix.label_smoothing = 0.1;
  recipe.task->label_smoothing = 0.1;
  recipe.task->one_hot = false;
  recipe.task->soft_labels_of_data = true;
  recipe.adamw(0.05);
  recipe.cosine(0.004, 300 * kEpoch);
  recipe.warm_up(5 * kEpoch);
  return recipe.config();
}

struct Missing {
  std::string_view name;
  const char* model;
  const char* nearest;
};
constexpr std::array kMissing = {
    Missing{"resnet_rs_imagenet", "ResNet-RS", "resnet_imagenet"},
    Missing{"revnet_imagenet", "RevNet", "resnet_imagenet"},
    Missing{"mobilenet_imagenet", "MobileNet", "efficientnet_b0"},
    Missing{"semantic_segmentation", "ResNet with heads for segmentation", "unet_small"},
    Missing{"seg_deeplabv3_pascal", "DeepLab", "unet_small"},
    Missing{"seg_deeplabv3plus_pascal", "DeepLab", "unet_small"},
    Missing{"seg_deeplabv3plus_cityscapes", "DeepLab", "unet_small"},
    Missing{"seg_resnetfpn_pascal", "ResNet with a feature pyramid", "unet_small"},
    Missing{"mnv2_deeplabv3_pascal", "DeepLab", "unet_small"},
    Missing{"mnv2_deeplabv3_cityscapes", "DeepLab", "unet_small"},
    Missing{"mnv2_deeplabv3plus_cityscapes", "DeepLab", "unet_small"},
};

}  // namespace

std::vector<Experiment> model_garden_experiments() {
  return {
      {"image_classification", "Model Garden's for images: ResNet-50, no recipe",
       [] { return ExperimentConfig{.task = std::make_shared<ImageClassificationTask>()}; }},
      {"resnet_imagenet", "Model Garden's ResNet-50 on ImageNet", resnet_imagenet},
      {"vit_imagenet_pretrain", "Model Garden's vision transformer, base, on ImageNet", vit_imagenet_pretrain},
      {"vit_imagenet_finetune", "Model Garden's, at 384 x 384", vit_imagenet_finetune},
      {"deit_imagenet_pretrain", "Model Garden's, with the augmentation of DeiT", deit_imagenet_pretrain},
  };
}

std::string missing_of_model_garden(std::string_view name) {
  for (const Missing& each : kMissing) {
    if (each.name == name) {
      return c10::str("Model Garden's ", name, " trains a ", each.model, ", which is not among the models here; ",
                      each.nearest, " is the nearest");
    }
  }
  return "";
}

}  // namespace cohort
