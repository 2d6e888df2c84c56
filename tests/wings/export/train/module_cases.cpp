// Modules as users of LibTorch write them.
#include <torch/torch.h>

#include "tests/wings/export/train/export_cases.h"

namespace cohort::export_test {

namespace {

// Two inputs and two outputs by position, and writes in place.
struct TwoWays : torch::nn::Module {
  torch::nn::Conv2d conv{register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 3).padding(1)))};
  torch::nn::BatchNorm2d norm{register_module("norm", torch::nn::BatchNorm2d(4))};
  torch::nn::Linear meta{register_module("meta", torch::nn::Linear(3, 4))};
  torch::nn::Linear box{register_module("box", torch::nn::Linear(4, 4))};

  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& image, const torch::Tensor& numbers) {
    torch::Tensor x = norm(conv(image));
    x.relu_();
    x = torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1);
    torch::Tensor y = meta(numbers);
    y.add_(x, 0.5).clamp_(-1, 1);
    return {torch::log_softmax(x * y, 1), box(y)};
  }
};

// Sequences with LibTorch's own recurrent modules, of two layers and both directions.
struct Sequences : torch::nn::Module {
  torch::nn::Embedding words{register_module("words", torch::nn::Embedding(11, 6))};
  torch::nn::LSTM lstm{register_module(
      "lstm", torch::nn::LSTM(torch::nn::LSTMOptions(6, 5).num_layers(2).bidirectional(true).batch_first(true)))};
  torch::nn::GRU gru{register_module("gru", torch::nn::GRU(torch::nn::GRUOptions(10, 4)))};

  torch::Tensor forward(const torch::Tensor& tokens) {
    const torch::Tensor y = std::get<0>(lstm->forward(words(tokens)));
    return std::get<1>(gru->forward(y.transpose(0, 1))).squeeze(0);
  }
};

// Transformer of LibTorch's, which has [steps, batch, size].
struct Encoder : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(4, 8))};
  torch::nn::TransformerEncoder encoder{register_module(
      "encoder",
      torch::nn::TransformerEncoder(torch::nn::TransformerEncoderOptions(
          torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(12).activation(torch::kGELU), 2)))};

  torch::Tensor forward(const torch::Tensor& x) {
    return encoder(in(x).transpose(0, 1)).unsqueeze(0).flatten(0, 1).mean(0);
  }
};

// The rest of what modules often do with tensors.
struct Mixed : torch::nn::Module {
  torch::nn::Conv1d conv{register_module("conv", torch::nn::Conv1d(torch::nn::Conv1dOptions(6, 4, 3).groups(2)))};
  torch::nn::GroupNorm group{register_module("group", torch::nn::GroupNorm(2, 4))};
  torch::nn::InstanceNorm1d instance{
      register_module("instance", torch::nn::InstanceNorm1d(torch::nn::InstanceNorm1dOptions(4).affine(true)))};
  torch::nn::PReLU prelu{register_module("prelu", torch::nn::PReLU(torch::nn::PReLUOptions().num_parameters(4)))};
  torch::nn::LayerNorm layer{register_module("layer", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4, 8})))};

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = prelu(instance(group(conv(x))));
    y = layer(torch::glu(torch::cat({y, y.flip({2}) * 2}, 1).transpose(1, 2).transpose(1, 2), 1));
    const auto parts = y.chunk(2, 1);
    const torch::Tensor top = std::get<0>(y.topk(3, 2)).sum(2);
    const torch::Tensor mask = y.gt(0.1).logical_or(y.lt(-0.2));
    y = torch::where(mask, parts[0].repeat({1, 2, 1}), y.roll({1}, {2}));
    y = y.masked_fill(y.ne(y), 0.0).cumsum(2).triu();
    const torch::Tensor places = torch::arange(8).remainder(3).to(torch::kFloat) / 2;
    return torch::einsum("bct,t->bc", {y, places}) + top + y.amax({2});
  }
};

template <typename M>
ExportCase module_case(const std::string& name, const Example& example, const ModelOptions& options = {}) {
  return {.name = name,
          .make =
              [options] {
                Model model([] { return std::make_shared<M>(); }, options);
                draw_weights(model);
                return model;
              },
          .example = example};
}

}  // namespace

std::vector<ExportCase> module_cases() {
  torch::manual_seed(3);
  return {
      module_case<TwoWays>("two_ways",
                           {.inputs = {{"image", torch::randn({4, 2, 6, 5})}, {"meta", torch::randn({4, 3})}}},
                           {.name = "two_ways", .inputs = {"image", "meta"}, .outputs = {"class", "box"}}),
      module_case<Sequences>("libtorch_sequences", {.x = torch::randint(11, {4, 6}, torch::kLong)}),
      module_case<Encoder>("libtorch_encoder", {.x = torch::randn({4, 5, 4})}),
      module_case<Mixed>("mixed", {.x = torch::randn({4, 6, 10})}),
  };
}

}  // namespace cohort::export_test
