// The benchmarks' models: the MLP and the CNN of our layers, ResNet-50 written plainly for LibTorch. pytorch_step.py
// has the same in Python.
#include "bench.h"

#include <stdexcept>

#include "cohort/layers.h"

namespace cohort::bench {

namespace {

namespace nn = torch::nn;

nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

// He et al., 2016, with the stride in the 3x3 convolution (v1.5).
struct BottleneckImpl : nn::Module {
  BottleneckImpl(int64_t in, int64_t width, int64_t stride) {
    const int64_t out = 4 * width;
    body = register_module(
        "body", nn::Sequential(conv(in, width, 1, 1), nn::BatchNorm2d(width), nn::ReLU(), conv(width, width, 3, stride),
                               nn::BatchNorm2d(width), nn::ReLU(), conv(width, out, 1, 1), nn::BatchNorm2d(out)));
    if (in != out || stride != 1)
      shortcut = register_module("shortcut", nn::Sequential(conv(in, out, 1, stride), nn::BatchNorm2d(out)));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::relu(body->forward(x) + (shortcut.is_empty() ? x : shortcut->forward(x)));
  }
  nn::Sequential body{nullptr};
  nn::Sequential shortcut{nullptr};
};
TORCH_MODULE(Bottleneck);

nn::Sequential resnet50() {
  nn::Sequential net(conv(3, 64, 7, 2), nn::BatchNorm2d(64), nn::ReLU(),
                     nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  int64_t in = 64;
  const int64_t blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t width = int64_t{64} << stage;
    for (int64_t i = 0; i < blocks[stage]; ++i) {
      net->push_back(Bottleneck(in, width, i == 0 && stage > 0 ? 2 : 1));
      in = 4 * width;
    }
  }
  net->push_back(nn::AdaptiveAvgPool2d(1));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(in, kClasses));
  return net;
}

// Our layers for an example of this shape.
nn::Sequential of_layers(const std::vector<Layer>& layers, Shape shape) {
  nn::Sequential net;
  for (const Layer& layer : layers) {
    const BuildContext context{.name = "layer", .input = std::move(shape)};
    shape = layer.kind().output_shape(context);
    net->push_back(layer.kind().build(context));
  }
  return net;
}

}  // namespace

torch::nn::Sequential make_model(const std::string& name) {
  if (name == "mlp") {
    return of_layers({Dense(256, Activation::kRelu), Dense(128, Activation::kRelu), Dense(kClasses)}, {784});
  }
  if (name == "cnn") {
    return of_layers({Conv2D(32, 3, Activation::kRelu), Conv2D(64, 3, Activation::kRelu), MaxPooling2D(), Flatten(),
                      Dense(64, Activation::kRelu), Dense(kClasses)},
                     {1, 28, 28});
  }
  if (name == "resnet50") return resnet50();
  throw std::invalid_argument("unknown model " + name);
}

torch::Tensor make_input(const std::string& name, int64_t size) {
  if (name == "mlp") return torch::randn({size, 784});
  if (name == "cnn") return torch::randn({size, 1, 28, 28});
  return torch::randn({size, 3, 64, 64});
}

int64_t batch_per_replica(const std::string& name) {
  return name == "resnet50" ? 8 : 64;
}

}  // namespace cohort::bench
