#include "tests/wings/export/train/export_cases.h"

#include <torch/torch.h>

#include "cohort/models/zoo.h"

namespace cohort::export_test {

void draw_weights(const Model& model) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(5);
  NamedTensors weights = model.weights();
  for (auto& [name, value] : weights) {
    if (!value.is_floating_point()) continue;
    if (name.ends_with("running_var")) {
      value = torch::rand_like(value) + 0.5;
    } else {
      value = value + torch::randn_like(value) * 0.05;
    }
  }
  model.set_weights(weights);
}

NamedTensors rows_of(const Example& example, int64_t size) {
  const torch::Tensor rows = torch::arange(size).remainder(example.size());
  NamedTensors inputs;
  if (example.x.defined()) inputs.emplace_back("x", example.x.index_select(0, rows));
  for (const auto& [name, input] : example.inputs) inputs.emplace_back(name, input.index_select(0, rows));
  return inputs;
}

namespace {

Model built(const std::vector<Layer>& layers, const Shape& shape, torch::ScalarType dtype) {
  Sequential model(layers);
  model.build(shape, dtype);
  draw_weights(model);
  return model;
}

std::vector<int64_t> batch_of(int64_t size, const Shape& shape) {
  std::vector<int64_t> sizes = {size};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return sizes;
}

template <typename Make>
Model model_of(const Make& make) {
  Model model(make);
  draw_weights(model);
  return model;
}

template <typename Make>
ExportCase image_case(const std::string& name, const Make& make, int64_t size, double tolerance = 1e-5) {
  torch::manual_seed(2);
  return {.name = name,
          .make = [make] { return model_of(make); },
          .example = {.x = torch::rand({4, 3, size, size})},
          .tolerance = tolerance};
}

ExportCase bert_case() {
  torch::manual_seed(2);
  const auto make = [] {
    return models::bert({.vocab_size = 50,
                         .hidden_size = 24,
                         .num_layers = 2,
                         .num_heads = 3,
                         .intermediate_size = 40,
                         .max_positions = 16});
  };
  return {.name = "bert",
          .make =
              [make] {
                Model model(make, ModelOptions{.name = "bert",
                                               .inputs = {"input_word_ids", "input_mask", "input_type_ids",
                                                          "masked_lm_positions"}});
                draw_weights(model);
                return model;
              },
          .example = {.inputs = {{"input_word_ids", torch::randint(50, {4, 12}, torch::kInt)},
                                 {"input_mask", torch::randint(2, {4, 12}, torch::kInt)},
                                 {"input_type_ids", torch::randint(2, {4, 12}, torch::kInt)},
                                 {"masked_lm_positions", torch::randint(12, {4, 3}, torch::kInt)}}}};
}

ExportCase dlrm_case() {
  torch::manual_seed(2);
  const auto make = [] {
    return models::dlrm({.num_dense_features = 5,
                         .vocab_sizes = {7, 9, 11},
                         .embedding_dim = 8,
                         .bottom_mlp = {16, 8},
                         .top_mlp = {12, 1}});
  };
  return {.name = "dlrm",
          .make = [make] { return model_of(make); },
          .example = {.inputs = {{"dense_features", torch::rand({4, 5})},
                                 {"sparse_features", torch::randint(7, {4, 3}, torch::kLong)}}}};
}

}  // namespace

ExportCase layers_case(const std::string& name, const std::vector<Layer>& layers, const Shape& shape) {
  torch::manual_seed(1);
  return {.name = name,
          .make = [layers, shape] { return built(layers, shape, torch::kFloat); },
          .example = {.x = torch::randn(batch_of(4, shape))}};
}

ExportCase indices_case(const std::string& name, const std::vector<Layer>& layers, const Shape& shape, int64_t below) {
  torch::manual_seed(1);
  return {.name = name,
          .make = [layers, shape] { return built(layers, shape, torch::kLong); },
          .example = {.x = torch::randint(below, batch_of(4, shape), torch::kLong)}};
}

std::vector<ExportCase> zoo_cases() {
  torch::manual_seed(2);
  const torch::Tensor tokens = torch::randint(40, {4, 10}, torch::kLong);
  const models::DecoderOptions decoder = {
      .vocab_size = 40, .hidden_size = 24, .intermediate_size = 32, .num_layers = 2, .num_heads = 4, .num_kv_heads = 2};
  return {
      image_case(
          "resnet18", [] { return models::resnet18({.num_classes = 7}); }, 32),
      image_case(
          "resnet50", [] { return models::resnet50({.num_classes = 7}); }, 32, 1e-4),
      image_case(
          "resnet_cifar", [] { return models::resnet_cifar(1, {.num_classes = 7}); }, 32),
      image_case(
          "resnet_last", [] { return models::resnet_cifar(1, {.num_classes = 7, .channels_last = true}); }, 32),
      image_case(
          "efficientnet", [] { return models::efficientnet(0, {.num_classes = 7}); }, 32, 1e-4),
      image_case(
          "unet", [] { return models::unet({.num_classes = 3, .filters = 4, .levels = 2}); }, 32),
      image_case(
          "vit",
          [] {
            return models::vision_transformer({.image_size = 32,
                                               .patch_size = 8,
                                               .num_layers = 2,
                                               .num_heads = 3,
                                               .hidden_dim = 24,
                                               .mlp_dim = 48,
                                               .num_classes = 7});
          },
          32),
      {.name = "decoder",
       .make = [decoder] { return model_of([decoder] { return models::decoder(decoder); }); },
       .example = {.x = tokens}},
      bert_case(),
      dlrm_case(),
  };
}

}  // namespace cohort::export_test
