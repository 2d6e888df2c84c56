// The model of image classification: task.model becomes a module of the zoo, or the layers of the digit classifiers.
#include "wings/vision/models/image_model.h"

#include "base/fail.h"

namespace cohort {

namespace {

// Fails if there is no model of that number.
template <typename Id, typename Result>
Result choose(const char* field, const Id& id, const std::vector<std::pair<Id, Result>>& known) {
  std::string names;
  for (const auto& [each, result] : known) {
    if (each == id) return result;
    names += c10::str(names.empty() ? "" : ", ", each);
  }
  fail<InvalidArgument>("[task] task.model.backbone.", field, " is ", id, ", wanted one of ", names);
}

models::VisionTransformerOptions vit_of(const std::string& name) {
  using Options = models::VisionTransformerOptions;
  const Options tiny{.num_heads = 3, .hidden_dim = 192, .mlp_dim = 768};
  const Options small{.num_heads = 6, .hidden_dim = 384, .mlp_dim = 1536};
  const Options large{.num_layers = 24, .num_heads = 16, .hidden_dim = 1024, .mlp_dim = 4096};
  return choose<std::string, Options>(
      "vit.model_name", name, {{"vit-ti16", tiny}, {"vit-s16", small}, {"vit-b16", Options{}}, {"vit-l16", large}});
}

models::NormActivation norm_activation(const ImageModelConfig& config) {
  const auto& given = config.norm_activation;
  models::NormActivation options{.synchronized = given.use_sync_bn};
  if (given.norm_epsilon >= 0.0) options.epsilon = given.norm_epsilon;
  if (given.norm_momentum >= 0.0) options.momentum = 1.0 - given.norm_momentum;
  if (!given.activation->empty()) options.activation = Activation::parse(*given.activation);
  return options;
}

// Fails unless the batch norms, which vision transformers do not have, have the values of Model Garden's files.
void require_usual_norms(const ImageModelConfig& config) {
  const auto& given = config.norm_activation;
  const bool usual = (given.activation->empty() || given.activation == "relu") && !given.use_sync_bn &&
                     (given.norm_momentum < 0.0 || given.norm_momentum == 0.99) &&
                     (given.norm_epsilon < 0.0 || given.norm_epsilon == 0.001);
  if (usual) return;
  fail<InvalidArgument>("[task] task.model.norm_activation is activation ", given.activation, ", use_sync_bn ",
                        given.use_sync_bn, ", norm_momentum ", given.norm_momentum, ", norm_epsilon ",
                        given.norm_epsilon, ", but ", config.backbone.type,
                        " has no batch norm and its own activation: leave it out, or as Model Garden's files have it");
}

std::shared_ptr<LayerModule> build_original(const ImageModelConfig& config) {
  using Resnet = std::shared_ptr<LayerModule> (*)(const models::ResNetOptions&);
  const auto& backbone = config.backbone;
  const auto resnet = [&](bool zero_init_residual) {
    return models::ResNetOptions{.num_classes = config.num_classes,
                                 .in_channels = config.channels(),
                                 .zero_init_residual = zero_init_residual,
                                 .channels_last = config.channels_last,
                                 .remat = config.remat,
                                 .norm_activation = norm_activation(config)};
  };
  if (backbone.type == "resnet") {
    return choose<int64_t, Resnet>("resnet.model_id", backbone.resnet.model_id,
                                   {{18, models::resnet18},
                                    {34, models::resnet34},
                                    {50, models::resnet50},
                                    {101, models::resnet101},
                                    {152, models::resnet152}})(resnet(backbone.resnet.zero_init_residual));
  }
  if (backbone.type == "resnet_cifar") {
    const int64_t id = backbone.resnet_cifar.model_id;
    if (id < 8 || (id - 2) % 6 != 0) {
      fail<InvalidArgument>("[task] task.model.backbone.resnet_cifar.model_id is ", id,
                            ", wanted 20, 32, 44, 56 or the like: 6 n + 2");
    }
    return models::resnet_cifar((id - 2) / 6, resnet(backbone.resnet_cifar.zero_init_residual));
  }
  if (backbone.type == "efficientnet") {
    const int variant = choose<std::string, int>(
        "efficientnet.model_id", backbone.efficientnet.model_id,
        {{"b0", 0}, {"b1", 1}, {"b2", 2}, {"b3", 3}, {"b4", 4}, {"b5", 5}, {"b6", 6}, {"b7", 7}});
    return models::efficientnet(variant, {.num_classes = config.num_classes,
                                          .in_channels = config.channels(),
                                          .dropout = config.dropout_rate > 0.0 ? *config.dropout_rate : -1.0,
                                          .stochastic_depth_prob = backbone.efficientnet.stochastic_depth_drop_rate,
                                          .channels_last = config.channels_last,
                                          .remat = config.remat,
                                          .se_ratio = backbone.efficientnet.se_ratio,
                                          .norm_activation = norm_activation(config)});
  }
  return models::vision_transformer(vit_options(config));
}

// Draws the weights of the classifier as the user wants.
void initialize_head(torch::nn::Module& made, const std::string& head, const std::string& initializer) {
  if (initializer.empty()) return;
  const torch::NoGradGuard no_grad;
  for (const auto& item : made.named_parameters()) {
    torch::Tensor weight = item.value();
    if (!item.key().starts_with(head + ".") || weight.dim() != 2) continue;
    if (item.key().find("pre_logits") != std::string::npos) continue;
    Initializer(initializer == "zeros" ? Initializer::kZeros : Initializer::kUniform)
        .fill(weight, static_cast<double>(weight.size(1)), static_cast<double>(weight.size(0)));
  }
}

}  // namespace

models::VisionTransformerOptions vit_options(const ImageModelConfig& config) {
  require_usual_norms(config);
  const auto& own = config.backbone.vit;
  models::VisionTransformerOptions vit = vit_of(own.model_name);
  if (config.input_size->at(0) != config.input_size->at(1)) {
    fail<InvalidArgument>("[task] task.model.input_size is ", config.input_size->at(0), " x ", config.input_size->at(1),
                          ", a vision transformer wants a square");
  }
  vit.image_size = config.input_size->at(0);
  if (own.patch_size > 0) vit.patch_size = own.patch_size;
  vit.num_classes = config.num_classes;
  vit.in_channels = config.channels();
  vit.dropout = config.dropout_rate;
  vit.stochastic_depth_prob = own.init_stochastic_depth_rate;
  vit.representation_size = own.representation_size;
  vit.normal_init = !own.original_init;
  vit.remat = config.remat;
  return vit;
}

std::shared_ptr<LayerModule> build_backbone(const ImageModelConfig& config, const std::string& head) {
  auto made = build_original(config);
  initialize_head(*made, head, config.kernel_initializer);
  return made;
}

}  // namespace cohort
