// What the image classifiers are made of.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/types.h>

#include <memory>
#include <vector>

#include "cohort/models/zoo.h"
#include "cohort/train/layers.h"

namespace cohort::models {

struct ConvShape {
  int64_t in = 0;
  int64_t out = 0;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t groups = 1;
};
// Padded by kernel / 2, without a bias, its weights drawn after He et al. by the fan out.
torch::nn::Conv2d conv(const ConvShape& shape);

struct NormShape {
  double epsilon = 1e-5;
  double momentum = 0.1;
  bool synchronized = false;
};
// With the user's values in place of the model's.
NormShape chosen(NormShape own, const NormActivation& options);
torch::nn::BatchNorm2d norm(int64_t channels, const NormShape& shape);

// As norm->forward(x), and of no examples too; synchronized: by the statistics of all replicas.
torch::Tensor batch_norm(torch::nn::BatchNorm2d& norm, const torch::Tensor& x, bool synchronized = false);

// One after the other, named "0", "1", ...
class Chain final : public LayerModule {
 public:
  void push_back(const std::shared_ptr<LayerModule>& link);
  torch::Tensor forward(const torch::Tensor& x) override;

 private:
  std::vector<std::shared_ptr<LayerModule>> links_;
};

// Convolution, batch norm, named "0" and "1", and an activation.
class ConvNorm final : public LayerModule {
 public:
  ConvNorm(const ConvShape& shape, const NormShape& norm, Activation activation = {});
  torch::Tensor forward(const torch::Tensor& x) override;

 private:
  torch::nn::Conv2d conv_;
  torch::nn::BatchNorm2d norm_;
  bool synchronized_;
  Activation activation_;
};

// x with elements at zero by the probability, the others grown to make up for it; by the generator of the current
// replica. Of `shape`, which broadcasts to x's: with [examples, 1, ...] whole examples (stochastic depth, G. Huang et
// al., 2016).
torch::Tensor drop(const torch::Tensor& x, double probability, at::IntArrayRef shape);

// Draws from a normal distribution that is cut off at two deviations.
void draw_truncated_normal(torch::Tensor tensor, double deviation);

// An image classifier's input: [examples, channels, height, width].
void check_images(const char* model, const torch::Tensor& x, int64_t channels);

}  // namespace cohort::models
