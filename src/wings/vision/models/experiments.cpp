#include "wings/vision/models/experiments.h"

#include "cohort/models/image_classification.h"
#include "cohort/models/semantic_segmentation.h"
#include "wings/vision/models/model_garden.h"

namespace cohort {

namespace {

// An experiment whose task is image classification.
struct Recipe {
  std::shared_ptr<ImageClassificationTask> task = std::make_shared<ImageClassificationTask>();
  TrainerConfig trainer = trainer_by_epochs();

  void batch(int64_t size) {
    task->train_data.global_batch_size = size;
    task->validation_data.global_batch_size = size;
  }
  void cosine(double rate, double alpha = 0.0) {
    trainer.optimizer_config.learning_rate.type = "cosine";
    trainer.optimizer_config.learning_rate.cosine.initial_learning_rate = rate;
    trainer.optimizer_config.learning_rate.cosine.alpha = alpha;
  }
  void warm_up(int64_t steps) {
    trainer.optimizer_config.warmup.type = "linear";
    trainer.optimizer_config.warmup.linear.warmup_steps = steps;
  }
  void sgd(double l2_decay) {
    OptimizerConfig::Rule& rule = trainer.optimizer_config.optimizer;
    rule.type = "sgd";
    rule.sgd.momentum = 0.9;
    rule.sgd.nesterov = true;
    task->l2_decay = l2_decay;
  }
  void adamw(double weight_decay) {
    trainer.optimizer_config.optimizer.type = "adamw";
    trainer.optimizer_config.optimizer.adamw.weight_decay = weight_decay;
    trainer.optimizer_config.optimizer.adamw.exclude_from_weight_decay = {"1d"};
  }
  ExperimentConfig config() const { return {.task = task, .trainer = trainer}; }
};

ExperimentConfig mnist(const char* model) {
  Recipe recipe;
  recipe.task->model.num_classes = 10;
  recipe.task->model.input_size = {28, 28, 1};
  recipe.task->model.input_mean = {0.0};
  recipe.task->model.input_stddev = {1.0};
  recipe.task->model.backbone.type = model;
  recipe.task->builtin_data = "digits";
  recipe.task->top_k = 1;
  recipe.task->train_data.shuffle_buffer_size = 60'000;
  recipe.batch(128);
  recipe.cosine(2e-3, 0.01);
  recipe.trainer.optimizer_config.optimizer.type = "adam";
  return recipe.config();
}

// K. He et al. (2015), section 4.2, in less than a tenth of the epochs: hence the rate that rises and falls once, the
// small batches and the smooth labels.
ExperimentConfig resnet20_cifar10() {
  Recipe recipe;
  ImageModelConfig& model = recipe.task->model;
  model.num_classes = 10;
  model.input_size = {32, 32, 3};
  model.input_mean = {0.4914, 0.4822, 0.4465};
  model.input_stddev = {0.2470, 0.2435, 0.2616};
  model.backbone.type = "resnet_cifar";
  recipe.task->train_data.aug_crop = "padded";
  recipe.task->train_data.aug_crop_padding_mode = "reflect";
  recipe.task->train_data.cache = true;
  recipe.task->train_data.shuffle_buffer_size = 50'000;
  recipe.task->validation_data.cache = true;
  recipe.task->label_smoothing = 0.1;
  recipe.batch(64);
  recipe.sgd(5e-4);
  recipe.cosine(0.15);
  recipe.warm_up(2000);
  recipe.trainer.train_epochs = 15;
  return recipe.config();
}

// P. Goyal et al., "Accurate, Large Minibatch SGD" (2017): the rate grows with the batch, after a warm-up.
ExperimentConfig resnet(int64_t layers) {
  Recipe recipe;
  recipe.task->model.backbone.resnet.model_id = layers;
  recipe.task->model.backbone.resnet.zero_init_residual = true;
  recipe.task->label_smoothing = 0.1;
  recipe.batch(256);
  recipe.sgd(1e-4);
  recipe.cosine(0.1);
  recipe.warm_up(1000);
  recipe.trainer.train_epochs = 90;
  return recipe.config();
}

// M. Tan and Q. Le (2019): RMSprop, a rate that decays by 3% every 2.4 epochs, averages of the weights.
ExperimentConfig efficientnet(const std::string& variant, int64_t image_size) {
  Recipe recipe;
  recipe.task->model.backbone.type = "efficientnet";
  recipe.task->model.backbone.efficientnet.model_id = variant;
  recipe.task->model.input_size = {image_size, image_size, 3};
  recipe.task->label_smoothing = 0.1;
  recipe.batch(256);
  OptimizerConfig& optimizer = recipe.trainer.optimizer_config;
  optimizer.optimizer.type = "rmsprop";
  optimizer.optimizer.rmsprop.momentum = 0.9;
  optimizer.optimizer.rmsprop.epsilon = 1e-3;
  recipe.task->l2_decay = 1e-5;
  optimizer.ema.average_decay = 0.9999;
  recipe.cosine(0.016);
  recipe.warm_up(1000);
  recipe.trainer.train_epochs = 350;
  return recipe.config();
}

// A. Steiner et al., "How to train your ViT?" (2021).
ExperimentConfig vit(const char* name) {
  Recipe recipe;
  recipe.task->model.backbone.type = "vit";
  recipe.task->model.backbone.vit.model_name = name;
  recipe.task->model.input_mean = {0.5, 0.5, 0.5};
  recipe.task->model.input_stddev = {0.5, 0.5, 0.5};
  recipe.task->label_smoothing = 0.1;
  recipe.task->train_data.mixup_and_cutmix.mixup_alpha = 0.2;
  recipe.batch(512);
  recipe.adamw(0.1);
  recipe.trainer.optimizer_config.optimizer.global_clipnorm = 1.0;
  recipe.cosine(1e-3);
  recipe.warm_up(10'000);
  recipe.trainer.train_epochs = 300;
  return recipe.config();
}

// Two classes from few photographs: at first the classifier alone learns, on a backbone that init_checkpoint gives.
ExperimentConfig cats_vs_dogs() {
  Recipe recipe;
  ImageModelConfig& model = recipe.task->model;
  model.num_classes = 2;
  model.input_size = {64, 64, 3};
  model.input_mean = {0.4914, 0.4822, 0.4465};
  model.input_stddev = {0.2470, 0.2435, 0.2616};
  model.backbone.type = "resnet_cifar";
  recipe.task->init_checkpoint_modules = "backbone";
  recipe.task->train_data.cache = true;
  recipe.task->train_data.aug_min_area = 0.35;
  recipe.task->top_k = 1;
  recipe.batch(64);
  recipe.sgd(5e-4);
  recipe.cosine(0.02);
  recipe.trainer.train_epochs = 20;
  return recipe.config();
}

// O. Ronneberger et al., "U-Net" (2015), a quarter as wide and with a level less, for pictures of some thousand pixels.
ExperimentConfig unet_small() {
  auto task = std::make_shared<SemanticSegmentationTask>();
  task->builtin_data = "shapes";
  task->model.num_classes = 4;
  task->model.input_size = {64, 64, 3};
  task->model.input_mean = {0.5, 0.5, 0.5};
  task->model.input_stddev = {0.25, 0.25, 0.25};
  task->model.backbone.unet.filters = 16;
  task->model.backbone.unet.levels = 3;
  task->losses.ignore_label = -1;
  ExperimentConfig config{.task = task, .trainer = trainer_by_epochs()};
  config.trainer.train_epochs = 8;
  OptimizerConfig& optimizer = config.trainer.optimizer_config;
  optimizer.optimizer.type = "adam";
  optimizer.learning_rate.type = "cosine";
  optimizer.learning_rate.cosine.initial_learning_rate = 3e-3;
  optimizer.learning_rate.cosine.alpha = 0.01;
  return config;
}

std::vector<Experiment> image_experiments() {
  std::vector<Experiment> list = {
      {"mnist_mlp", "dense 256, 128, 10 on MNIST or drawn digits", [] { return mnist("mlp"); }},
      {"mnist_cnn", "two convolutions and two dense layers on MNIST or drawn digits", [] { return mnist("cnn"); }},
      {"resnet20_cifar10", "He et al.'s ResNet-20 on CIFAR-10", resnet20_cifar10},
      {"resnet18", "ResNet-18 at 224 x 224", [] { return resnet(18); }},
      {"resnet50", "ResNet-50 at 224 x 224", [] { return resnet(50); }},
  };
  const std::vector<int64_t> sizes = {224, 240, 288, 300, 380, 456, 528, 600};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::string variant = "b" + std::to_string(i);
    if (i == 0) {
      list.push_back({"efficientnet", "EfficientNet-B0, or the task.model.backbone.efficientnet.model_id that you set",
                      [] { return efficientnet("b0", 224); }});
    }
    list.push_back({"efficientnet_" + variant, c10::str("EfficientNet-B", i, " at ", sizes[i], " x ", sizes[i]),
                    [variant, size = sizes[i]] { return efficientnet(variant, size); }});
  }
  list.push_back({"vit_tiny", "vision transformer, tiny, patches of 16", [] { return vit("vit-ti16"); }});
  list.push_back({"vit_base", "vision transformer, base, patches of 16", [] { return vit("vit-b16"); }});
  list.push_back({"vit_large", "vision transformer, large, patches of 16", [] { return vit("vit-l16"); }});
  list.push_back({"cats_vs_dogs", "ResNet from CIFAR-10, frozen, then fine-tuned, on photographs", cats_vs_dogs});
  return list;
}

std::vector<Experiment> segmentation_experiments() {
  return {{"unet_small", "U-Net of three levels on pictures with masks or drawn shapes", unet_small}};
}

}  // namespace

std::vector<ExperimentGroup> vision_experiments() {
  return {{.wing = "vision", .place = 0, .make = image_experiments},
          {.wing = "vision", .place = 3, .make = segmentation_experiments},
          {.wing = "vision", .place = 4, .make = model_garden_experiments, .why_missing = missing_of_model_garden}};
}

std::vector<TaskKind> vision_tasks() {
  return {{.name = "task",
           .place = 0,
           .make = []() -> std::shared_ptr<Task> { return std::make_shared<ImageClassificationTask>(); }},
          {.name = "segmentation", .place = 1, .make = []() -> std::shared_ptr<Task> {
             return std::make_shared<SemanticSegmentationTask>();
           }}};
}

}  // namespace cohort
