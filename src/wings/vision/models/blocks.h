// The parts of the image classifiers.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "cohort/models/image_models.h"
#include "cohort/train/layers/layer.h"

namespace cohort::models {

struct ConvShape {
  int64_t in = 0;
  int64_t out = 0;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t groups = 1;
};
// Makes a convolution without a bias, padded by kernel / 2, whose weights are drawn after He et al. by the fan out.
torch::nn::Conv2d conv(const ConvShape& shape);

struct NormShape {
  double epsilon = 1e-5;
  double momentum = 0.1;
  bool synchronized = false;
};
// Returns the shape with the user's values in place of the model's own.
NormShape chosen(NormShape own, const NormActivation& options);
torch::nn::BatchNorm2d norm(int64_t channels, const NormShape& shape);

// Returns norm->forward(x), also for no examples; if `synchronized`, with the statistics of all replicas.
torch::Tensor batch_norm(torch::nn::BatchNorm2d& norm, const torch::Tensor& x, bool synchronized = false);

// Modules that are called one after the other, named "0", "1", ...
class Chain final : public LayerModule {
 public:
  // With `again` each of them is computed again in backward (cohort::remat). With `place`, the chain's name in the
  // model, a chunk of a pipeline may begin with each of them (stage_place).
  explicit Chain(bool again = false, std::string place = "") : again_(again), place_(std::move(place)) {}
  void push_back(const std::shared_ptr<LayerModule>& link);
  std::size_t size() const { return links_.size(); }
  torch::Tensor forward(const torch::Tensor& x) override;

 private:
  bool again_;
  std::string place_;
  std::vector<std::shared_ptr<LayerModule>> links_;
};

// Returns block(x); with `again` backward computes it again (cohort::remat).
torch::Tensor through(const std::shared_ptr<LayerModule>& block, const torch::Tensor& x, bool again);

// A convolution and a batch norm, named "0" and "1", and an activation.
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

// Draws from a normal distribution that is cut off at two deviations.
void draw_truncated_normal(torch::Tensor tensor, double deviation);

// Fails unless x is the input of an image classifier: [examples, channels, height, width].
void check_images(const char* model, const torch::Tensor& x, int64_t channels);

}  // namespace cohort::models
