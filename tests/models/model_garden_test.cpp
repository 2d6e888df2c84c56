// Model Garden's experiments, and files with the keys of its files, from the file to what they change.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/data/image.h"
#include "cohort/data/tf_example.h"
#include "cohort/data/tfrecord.h"
#include "cohort/error.h"
#include "cohort/models/image_classification.h"
#include "optimizer/update_rule.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::model_garden_test {
namespace {

using cohort::testing::expect_error;
using cohort::testing::TemporaryFolder;

// The keys of imagenet_resnet50_gpu.yaml, for a machine of a test.
constexpr const char* kResNet = R"(
runtime: {distribution_strategy: 'mirrored', loss_scale: 'dynamic', mixed_precision_dtype: 'float32'}
task:
  model:
    num_classes: 4
    input_size: [32, 32, 3]
    norm_activation: {norm_momentum: 0.9, norm_epsilon: 0.00001, use_sync_bn: true, activation: 'relu'}
    backbone: {type: 'resnet', resnet: {model_id: 50, zero_init_residual: true}}
  losses: {l2_weight_decay: 0.0001, one_hot: true, label_smoothing: 0.1}
  train_data: {input_path: 'FOLDER/train*', is_training: true, global_batch_size: 4, dtype: 'bfloat16',
               prefetch_buffer_size: 3, sharding: true, seed: 3, cycle_length: 2, block_length: 2, drop_remainder: true,
               shuffle_buffer_size: 8, cache: true}
  validation_data: {input_path: 'FOLDER/valid*', is_training: false, global_batch_size: 4, dtype: 'bfloat16',
                    drop_remainder: false, prefetch_buffer_size: 2}
trainer:
  train_steps: 2
  validation_steps: 1
  validation_interval: 2
  steps_per_loop: 2
  summary_interval: 2
  checkpoint_interval: 2
  optimizer_config:
    optimizer: {type: 'sgd', sgd: {momentum: 0.9}}
    learning_rate: {type: 'stepwise', stepwise: {boundaries: [1, 2, 3], values: [0.001, 0.0008, 0.0004, 0.0001]}}
    warmup: {type: 'linear', linear: {warmup_steps: 1}}
)";

// Those of imagenet_vitti16_i224_gpu.yaml.
constexpr const char* kVit = R"(
runtime: {distribution_strategy: mirrored, mixed_precision_dtype: float32}
task:
  losses: {l2_weight_decay: 0.0, label_smoothing: 0.1, one_hot: false, soft_labels: true}
  model:
    backbone:
      type: vit
      vit: {init_stochastic_depth_rate: 0.1, model_name: vit-ti16, original_init: false, patch_size: 8,
            representation_size: 0}
    dropout_rate: 0.0
    input_size: [16, 16, 3]
    kernel_initializer: zeros
    norm_activation: {activation: relu, norm_epsilon: 0.001, norm_momentum: 0.99, use_sync_bn: false}
    num_classes: 4
  train_data:
    aug_rand_hflip: true
    aug_type:
      randaug: {cutout_const: 40, exclude_ops: [Cutout], magnitude: 9, magnitude_std: 0.0, num_layers: 2,
                translate_const: 10}
      type: randaug
    dtype: float16
    global_batch_size: 4
    input_path: FOLDER/train*
    is_training: true
    mixup_and_cutmix: {cutmix_alpha: 1.0, label_smoothing: 0.1, mixup_alpha: 0.8, prob: 1.0, switch_prob: 0.5}
    randaug_magnitude: 10
  validation_data: {dtype: float16, global_batch_size: 4, input_path: FOLDER/valid*, is_training: false,
                    drop_remainder: false}
trainer:
  checkpoint_interval: 2
  optimizer_config:
    learning_rate: {cosine: {alpha: 0.0, decay_steps: 2, initial_learning_rate: 0.0005}, type: cosine}
    optimizer:
      adamw: {include_in_weight_decay: .*(kernel|weight):0$, weight_decay_rate: 0.05}
      type: adamw
    warmup: {linear: {warmup_learning_rate: 0, warmup_steps: 1}, type: linear}
  steps_per_loop: 2
  summary_interval: 2
  train_steps: 2
  validation_interval: 2
  validation_steps: 1
)";

// A file for an EfficientNet.
constexpr const char* kEfficientNet = R"(
task:
  model:
    num_classes: 4
    input_size: [16, 16, 3]
    dropout_rate: 0.2
    backbone: {type: efficientnet, efficientnet: {model_id: b0, se_ratio: 0.25, stochastic_depth_drop_rate: 0.2}}
    norm_activation: {activation: swish, norm_momentum: 0.99, norm_epsilon: 0.001, use_sync_bn: false}
  losses: {l2_weight_decay: 0.00001, label_smoothing: 0.1, one_hot: true}
  train_data: {input_path: 'FOLDER/train*', global_batch_size: 4, cycle_length: 2}
  validation_data: {input_path: 'FOLDER/valid*', global_batch_size: 4}
trainer:
  train_steps: 2
  optimizer_config:
    ema: {average_decay: 0.9999}
    optimizer: {type: rmsprop, rmsprop: {rho: 0.9, momentum: 0.9, epsilon: 0.001}}
    learning_rate: {type: exponential, exponential: {initial_learning_rate: 0.016, decay_steps: 2, decay_rate: 0.97,
                    staircase: true}}
)";

void write_records(const std::filesystem::path& file) {
  TFRecordWriter writer(file);
  for (int64_t i = 0; i < 8; ++i) {
    TFExample example;
    example.set_bytes("image/encoded", {encode_png(torch::randint(256, {3, 20, 20}, torch::kByte))});
    example.set_int64s("image/class/label", {i % 4});
    writer.write(example.serialize());
  }
  writer.close();
}

std::string placed(std::string yaml, const std::filesystem::path& folder) {
  for (std::size_t at = yaml.find("FOLDER"); at != std::string::npos; at = yaml.find("FOLDER")) {
    yaml.replace(at, 6, folder.string());
  }
  return yaml;
}

TEST(ModelGardenTest, ItsFilesTrain) {
  torch::manual_seed(1);
  const TemporaryFolder folder;
  for (const char* name : {"train-0", "train-1", "valid-0"}) write_records(folder / name);
  for (const auto& [name, yaml] : {std::pair{"resnet_imagenet", kResNet}, std::pair{"deit_imagenet_pretrain", kVit},
                                   std::pair{"efficientnet", kEfficientNet}}) {
    const std::filesystem::path file = folder / (std::string(name) + ".yaml");
    testing::write_file(file, placed(yaml, folder.path()));
    ExperimentConfig experiment = find_experiment(name).make();
    Config config([&](ConfigFields& fields) { experiment.describe(fields); });
    config.apply_file(file);
    config.lock();
    const MirroredStrategy strategy({.devices = cpu_devices(2)});
    std::ostringstream said;
    const Logs logs =
        run_experiment(experiment, config, strategy, {.model_dir = folder / name, .experiment = name, .output = &said});
    EXPECT_TRUE(logs.contains("accuracy")) << said.str();
    EXPECT_TRUE(std::isfinite(logs["loss"])) << said.str();
  }
}

struct Made {
  ExperimentConfig experiment;
  ImageClassificationTask& task() const { return dynamic_cast<ImageClassificationTask&>(*experiment.task); }
};

Made made(const std::string& overrides, const char* name = "image_classification") {
  Made result{find_experiment(name).make()};
  Config config([&](ConfigFields& fields) { result.experiment.describe(fields); });
  if (!overrides.empty()) config.apply_override(overrides);
  config.lock();
  return result;
}

// Returns what is left of a weight of 1 after an update with a gradient of 0 and a rate of 1.
double decayed(const std::string& overrides, double l2, int64_t rank = 2) {
  const Made made_one =
      made("trainer.optimizer_config.learning_rate.constant.learning_rate=1,trainer.optimizer_config.optimizer." +
           overrides);
  const Optimizer optimizer = made_one.experiment.trainer.optimizer_config.build(10, 1, 0, l2);
  torch::Tensor weight = torch::ones(std::vector<int64_t>(static_cast<std::size_t>(rank), 1));
  std::vector<torch::Tensor> slots;
  for (std::size_t i = 0; i < optimizer.rule().slots().size(); ++i) {
    slots.push_back(torch::full_like(weight, optimizer.rule().initial_slot_value(i)));
  }
  const StepContext context{.learning_rate = 1.0, .step = 1, .l2 = optimizer.gradient().l2};
  const Treatment treatment{.decay = optimizer.decays("weight", rank)};
  optimizer.rule().update(weight, torch::zeros_like(weight), slots, treatment, context);
  return weight.item<double>();
}

TEST(ModelGardenTest, L2WeightDecayIsTheGradients) {
  EXPECT_DOUBLE_EQ(decayed("type=sgd", 0.0), 1.0);
  EXPECT_FLOAT_EQ(decayed("type=sgd", 0.25), 0.75);
  EXPECT_FLOAT_EQ(decayed("type=sgd", 0.25, /*rank=*/1), 1.0);
  EXPECT_LT(decayed("type=adam", 0.25), 0.1);
  EXPECT_LT(decayed("type=rmsprop", 0.25), 1.0);
  EXPECT_LT(decayed("type=adagrad", 0.25), 1.0);
  EXPECT_LT(decayed("type=adamw", 0.25), 0.1);
  EXPECT_EQ(made("task.losses.l2_weight_decay=0.5").task().l2_weight_decay(), 0.5);
}

TEST(ModelGardenTest, DecayOfAdamW) {
  EXPECT_FLOAT_EQ(decayed("type=adamw", 0.0), 1.0);
  EXPECT_FLOAT_EQ(decayed("type=adamw,trainer.optimizer_config.optimizer.adamw.weight_decay=0.25", 0.0), 0.75);
  EXPECT_FLOAT_EQ(decayed("type=adamw,trainer.optimizer_config.optimizer.adamw.weight_decay_rate=0.5", 0.0), 0.5);
  const auto decays = [](const char* included) {
    OptimizerConfig config;
    config.optimizer.type = "adamw";
    config.optimizer.adamw.include_in_weight_decay = included;
    config.optimizer.adamw.weight_decay_rate = 0.1;
    const Optimizer optimizer = config.build(10, 1);
    return std::pair{optimizer.decays("class_token", 3), optimizer.decays("encoder.pos_embedding", 3)};
  };
  EXPECT_EQ(decays(""), (std::pair{true, true}));
  EXPECT_EQ(decays(".*(kernel|weight):0$"), (std::pair{false, false}));
  expect_error<InvalidArgument>(
      [] { made("trainer.optimizer_config.optimizer.adamw.include_in_weight_decay='.*bias'"); }, "wanted one of");
}

TEST(ModelGardenTest, EveryOptimizerCanBeConfigured) {
  for (const char* type : {"sgd", "adam", "adamw", "rmsprop", "adagrad", "adadelta", "adamax", "nadam", "ftrl", "lion",
                           "adafactor", "lamb", "lars"}) {
    OptimizerConfig config;
    config.optimizer.type = type;
    EXPECT_EQ(config.build(10, 1).name(), Optimizer(type).name());
  }
  const std::string adagrad = "type=adagrad,trainer.optimizer_config.optimizer.adagrad.";
  const double before = decayed("type=adagrad", 0.5);
  EXPECT_NE(before, decayed(adagrad + "epsilon=1", 0.5));
  EXPECT_NE(before, decayed(adagrad + "initial_accumulator_value=2", 0.5));
}

std::shared_ptr<torch::nn::Module> module_of(const std::string& overrides) {
  return made("task.model.num_classes=4,task.model.input_size=[16,16,3],task.model." + overrides)
      .task()
      .build_model()
      .module()
      .copies()
      .front();
}

torch::Tensor parameter(const torch::nn::Module& module, const std::string& name) {
  const auto parameters = module.named_parameters();
  const torch::Tensor* found = parameters.find(name);
  return found == nullptr ? torch::Tensor() : *found;
}

TEST(ModelGardenTest, NormActivation) {
  const auto norm = [](const std::string& overrides) {
    const auto module = module_of(overrides);
    for (const auto& each : module->modules()) {
      if (const auto* found = each->as<torch::nn::BatchNorm2dImpl>()) return found->options;
    }
    return torch::nn::BatchNormOptions(0);
  };
  for (const std::string model :
       {"backbone.resnet.model_id=18", "backbone.type=resnet_cifar", "backbone.type=efficientnet"}) {
    EXPECT_EQ(norm(model).eps(), 1e-5);
    EXPECT_EQ(norm(model + ",task.model.norm_activation.norm_epsilon=0.5").eps(), 0.5);
    EXPECT_DOUBLE_EQ(norm(model + ",task.model.norm_activation.norm_momentum=0.75").momentum().value(), 0.25);
    const auto output = [&](const char* activation) {
      torch::manual_seed(1);
      const auto module = module_of(model + ",task.model.norm_activation.activation=" + activation);
      module->eval();
      return std::dynamic_pointer_cast<LayerModule>(module)->forward(torch::ones({1, 3, 16, 16}));
    };
    EXPECT_FALSE(torch::equal(output("relu"), output("swish")));
  }
  expect_error<NotFound>([] { module_of("norm_activation.activation=rellu"); }, "there is no activation \"rellu\"");
  expect_error<InvalidArgument>([] { module_of("backbone.type=vit,task.model.norm_activation.norm_momentum=0.5"); },
                                "vit has no batch norm");
}

TEST(ModelGardenTest, SynchronizedNormsSeeTheGlobalBatch) {
  torch::manual_seed(1);
  const Example batch{.x = torch::randn({6, 3, 16, 16}), .y = torch::randint(4, {6}, torch::kLong)};
  const auto means = [&](const std::string& model, const char* synchronized) {
    torch::manual_seed(2);
    const MirroredStrategy strategy({.devices = cpu_devices(2)});
    const auto scope = strategy.scope();
    Model net =
        made("task.model.num_classes=4,task.model.input_size=[16,16,3],task.model.norm_activation.use_sync_bn=" +
             std::string(synchronized) + ",task.model." + model)
            .task()
            .build_model();
    net.compile({.optimizer = "sgd", .loss = SparseCategoricalCrossentropy({.from_logits = true})});
    net.train_on_batch(batch);
    std::vector<torch::Tensor> result;
    for (const auto& copy : net.module().copies()) result.push_back(copy->named_buffers().values().front().clone());
    return result;
  };
  for (const char* model :
       {"backbone.resnet.model_id=18", "backbone.resnet.model_id=50", "backbone.type=efficientnet"}) {
    const auto own = means(model, "false"), shared = means(model, "true");
    EXPECT_FALSE(torch::equal(own[0], own[1])) << model;
    EXPECT_TRUE(torch::equal(shared[0], shared[1])) << model;
    EXPECT_TRUE(torch::allclose(shared[0], 0.5 * (own[0] + own[1]), 1e-4, 1e-6)) << model;
  }
}

TEST(ModelGardenTest, Classifiers) {
  const std::vector<std::pair<std::string, std::string>> heads = {{"backbone.resnet.model_id=18", "fc.weight"},
                                                                  {"backbone.type=efficientnet", "classifier.1.weight"},
                                                                  {"backbone.type=vit", "heads.head.weight"}};
  for (const auto& [model, name] : heads) {
    const auto weight = [&, name = name, model = model](const char* initializer) {
      return parameter(*module_of(model + ",task.model.kernel_initializer=" + initializer), name);
    };
    EXPECT_EQ(weight("zeros").abs().max().item<float>(), 0.0F) << name;
    const torch::Tensor uniform = weight("random_uniform");
    EXPECT_LE(uniform.abs().max().item<float>(), 0.05F) << name;
    EXPECT_GT(uniform.std().item<float>(), 0.02F) << name;
  }
}

TEST(ModelGardenTest, VisionTransformers) {
  const std::string tiny = "backbone.type=vit,task.model.backbone.vit.model_name=vit-ti16";
  const std::string key = ",task.model.backbone.vit.";
  EXPECT_EQ(parameter(*module_of(tiny + key + "patch_size=4"), "conv_proj.weight").size(2), 4);
  const auto represented = module_of(tiny + key + "representation_size=24");
  EXPECT_EQ(parameter(*represented, "heads.pre_logits.weight").sizes(), (std::vector<int64_t>{24, 192}));
  EXPECT_EQ(parameter(*represented, "heads.head.weight").size(1), 24);
  EXPECT_FALSE(parameter(*module_of(tiny), "heads.pre_logits.weight").defined());
  const torch::Tensor drawn = parameter(*module_of(tiny + key + "original_init=false"), "conv_proj.weight");
  EXPECT_NEAR(drawn.std().item<double>(), 0.88 * 0.02, 5e-4);
  EXPECT_LE(drawn.abs().max().item<double>(), 0.0401);
  const auto differs = [&](const std::string& overrides) {
    const auto module =
        std::dynamic_pointer_cast<LayerModule>(module_of(overrides + ",task.model.kernel_initializer=random_uniform"));
    const torch::Tensor x = torch::ones({8, 3, 16, 16});
    return !torch::equal(module->forward(x), module->forward(x));
  };
  EXPECT_FALSE(differs(tiny));
  EXPECT_TRUE(differs(tiny + key + "init_stochastic_depth_rate=0.5"));
}

TEST(ModelGardenTest, SqueezeAndExcitation) {
  const auto squeezed = [](const char* ratio) {
    const auto module =
        module_of(std::string("backbone.type=efficientnet,task.model.backbone.efficientnet.se_ratio=") + ratio);
    const torch::Tensor weight = parameter(*module, "features.2.0.block.2.fc1.weight");
    return weight.defined() ? weight.size(0) : 0;
  };
  EXPECT_EQ(squeezed("0.25"), 4);
  EXPECT_EQ(squeezed("0.5"), 8);
  EXPECT_EQ(squeezed("0"), 0);
}

TEST(ModelGardenTest, NamesOfExperiments) {
  EXPECT_EQ(made("", "resnet_imagenet").task().l2_weight_decay(), 1e-4);
  EXPECT_EQ(made("", "efficientnet").task().model.backbone.type, "efficientnet");
  EXPECT_EQ(made("", "vit_imagenet_finetune").task().model.input_size->at(0), 384);
  EXPECT_EQ(made("", "vit_imagenet_pretrain").task().model.backbone.vit.representation_size, 768);
  expect_error<NotFound>([] { find_experiment("mobilenet_imagenet"); },
                         "trains a MobileNet, which is not among the models here; efficientnet_b0 is the nearest");
  expect_error<NotFound>([] { find_experiment("resnet_rs_imagenet"); }, "resnet_imagenet is the nearest");
  expect_error<NotFound>([] { find_experiment("resnet_imagnet"); }, "did you mean resnet_imagenet?");
  expect_error<InvalidArgument>([] { find_experiment(""); }, "--experiment is missing; there are mnist_mlp");
}

}  // namespace
}  // namespace cohort::model_garden_test
