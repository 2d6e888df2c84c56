#include "cohort/image_classification.h"

#include <algorithm>

#include "base/fail.h"
#include "cohort/models.h"
#include "models/mnist.h"
#include "models/tasks/image_data.h"
#include "strategy/core.h"

namespace cohort {

namespace {

// The number of a model among those that there are.
template <typename Id, typename Result>
Result choose(const char* field, const Id& id, const std::vector<std::pair<Id, Result>>& known) {
  std::string names;
  for (const auto& [each, result] : known) {
    if (each == id) return result;
    names += c10::str(names.empty() ? "" : ", ", each);
  }
  fail<InvalidArgument>("[task] task.model.backbone.", field, " is ", id, ", wanted one of ", names);
}

models::VisionTransformerOptions vit_options(const std::string& name) {
  using Options = models::VisionTransformerOptions;
  const Options tiny{.num_heads = 3, .hidden_dim = 192, .mlp_dim = 768};
  const Options small{.num_heads = 6, .hidden_dim = 384, .mlp_dim = 1536};
  const Options large{.num_layers = 24, .num_heads = 16, .hidden_dim = 1024, .mlp_dim = 4096};
  return choose<std::string, Options>(
      "vit.model_name", name, {{"vit-ti16", tiny}, {"vit-s16", small}, {"vit-b16", Options{}}, {"vit-l16", large}});
}

std::shared_ptr<LayerModule> build_backbone(const ImageModelConfig& config) {
  using Resnet = std::shared_ptr<LayerModule> (*)(const models::ResNetOptions&);
  const auto& backbone = config.backbone;
  models::ResNetOptions resnet{.num_classes = config.num_classes,
                               .in_channels = config.channels(),
                               .zero_init_residual = backbone.resnet.zero_init_residual,
                               .channels_last = config.channels_last};
  if (backbone.type == "resnet") {
    return choose<int64_t, Resnet>("resnet.model_id", backbone.resnet.model_id,
                                   {{18, models::resnet18},
                                    {34, models::resnet34},
                                    {50, models::resnet50},
                                    {101, models::resnet101},
                                    {152, models::resnet152}})(resnet);
  }
  if (backbone.type == "resnet_cifar") {
    const int64_t id = backbone.resnet_cifar.model_id;
    if (id < 8 || (id - 2) % 6 != 0) {
      fail<InvalidArgument>("[task] task.model.backbone.resnet_cifar.model_id is ", id,
                            ", wanted 20, 32, 44, 56 or the like: 6 n + 2");
    }
    resnet.zero_init_residual = backbone.resnet_cifar.zero_init_residual;
    return models::resnet_cifar((id - 2) / 6, resnet);
  }
  if (backbone.type == "efficientnet") {
    const int variant = choose<std::string, int>(
        "efficientnet.model_id", backbone.efficientnet.model_id,
        {{"b0", 0}, {"b1", 1}, {"b2", 2}, {"b3", 3}, {"b4", 4}, {"b5", 5}, {"b6", 6}, {"b7", 7}});
    return models::efficientnet(variant, {.num_classes = config.num_classes,
                                          .in_channels = config.channels(),
                                          .dropout = config.dropout_rate > 0.0 ? config.dropout_rate : -1.0,
                                          .stochastic_depth_prob = backbone.efficientnet.stochastic_depth_drop_rate,
                                          .channels_last = config.channels_last});
  }
  models::VisionTransformerOptions vit = vit_options(backbone.vit.model_name);
  if (config.input_size.at(0) != config.input_size.at(1)) {
    fail<InvalidArgument>("[task] task.model.input_size is ", config.input_size.at(0), " x ", config.input_size.at(1),
                          ", a vision transformer wants a square");
  }
  vit.image_size = config.input_size.at(0);
  vit.num_classes = config.num_classes;
  vit.in_channels = config.channels();
  vit.dropout = config.dropout_rate;
  return models::vision_transformer(vit);
}

}  // namespace

TaskData ImageClassificationTask::build_inputs(const RuntimeConfig& runtime, bool training) {
  const ImageSource source = open_images(*this, runtime);
  if (source.num_classes > model.num_classes) {
    fail<InvalidArgument>("[task] ", source.description, " has ", source.num_classes,
                          " classes, but task.model.num_classes is ", model.num_classes);
  }
  TaskData data{.validation = validation_batches(source, *this, runtime, soft_labels()),
                .description = source.description};
  if (!training) return data;
  data.train = training_batches(source, *this, runtime, soft_labels());
  const int64_t examples = std::max<int64_t>(source.train.cardinality(), 0);
  const int64_t batch = train_data.global_batch_size;
  data.steps_per_epoch = train_data.drop_remainder ? examples / batch : (examples + batch - 1) / batch;
  if (examples > 0 && data.steps_per_epoch == 0) {
    fail<InvalidArgument>("[task] ", source.description, " has ", examples,
                          " examples to train with, fewer than a batch, ", batch);
  }
  return data;
}

Model ImageClassificationTask::build_model() {
  if (model.input_size.size() != 3) {
    fail<InvalidArgument>("[task] task.model.input_size has ", model.input_size.size(),
                          " numbers, wanted height, width, channels");
  }
  if (model.backbone.type == "mlp" || model.backbone.type == "cnn") {
    Sequential made = model.backbone.type == "mlp" ? mnist_mlp(model.num_classes) : mnist_cnn(model.num_classes);
    made.build({model.input_size[0], model.input_size[1]});
    return made;
  }
  return Model([this] { return build_backbone(model); }, model.backbone.type);
}

Loss ImageClassificationTask::build_loss() {
  if (!soft_labels()) return SparseCategoricalCrossentropy({.from_logits = true});
  return CategoricalCrossentropy({.from_logits = true, .label_smoothing = label_smoothing});
}

std::vector<Metric> ImageClassificationTask::build_metrics() {
  std::vector<Metric> metrics;
  metrics.push_back(soft_labels() ? CategoricalAccuracy({.name = "accuracy"})
                                  : SparseCategoricalAccuracy({.name = "accuracy"}));
  if (top_k <= 1 || top_k >= model.num_classes) return metrics;
  const TopKAccuracyOptions options{.k = top_k, .name = c10::str("top_", top_k, "_accuracy")};
  metrics.push_back(soft_labels() ? TopKCategoricalAccuracy(options) : SparseTopKCategoricalAccuracy(options));
  return metrics;
}

bool ImageClassificationTask::soft_labels() const {
  return label_smoothing > 0.0 || train_data.mixup_alpha > 0.0 || train_data.cutmix_alpha > 0.0;
}

std::string ImageClassificationTask::head() const {
  const std::string& type = model.backbone.type;
  if (type == "efficientnet") return "classifier";
  if (type == "vit") return "heads";
  if (type == "mlp" || type == "cnn") return "";
  return "fc";
}

void ImageClassificationTask::initialize(Model& built) {
  if (init_checkpoint.empty()) return;
  built.strategy().core()->on_chief("the weights to start from", [&] {
    const std::filesystem::path place = init_checkpoint;
    const bool folder = std::filesystem::is_directory(place);
    NamedTensors given = folder ? read_checkpoint(place).data.tensors["model"] : load_weights(place).tensors;
    const bool backbone_only = init_checkpoint_modules == "backbone";
    std::erase_if(given, [&](const auto& item) { return backbone_only && item.first.starts_with(head() + "."); });
    if (given.empty()) fail<InvalidArgument>("[task] ", init_checkpoint, " holds no weights of a backbone");
    built.set_weights(given, /*strict=*/!backbone_only);
  });
  built.module().copy_from_chief();
}

// A backbone that is thawed later on: there a new stage begins.
std::vector<int64_t> ImageClassificationTask::stages() const {
  return freeze_backbone_steps > 0 ? std::vector<int64_t>{freeze_backbone_steps} : std::vector<int64_t>{};
}

void ImageClassificationTask::before_stage(std::size_t stage, Model& built) {
  const bool frozen = freeze_backbone || (freeze_backbone_steps > 0 && stage == 0);
  if (frozen && head().empty()) {
    fail<InvalidArgument>("[task] task.freeze_backbone: the model ", model.backbone.type, " has no backbone");
  }
  for (const ModelLayer& layer : built.layers()) layer.set_trainable(!frozen || layer.name() == head());
}

}  // namespace cohort
