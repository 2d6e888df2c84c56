// Model Garden's MixupAndCutmix: each picture meets the one at the mirrored place of the batch.
#include <ATen/Functions.h>

#include <cmath>
#include <vector>

#include "base/fail.h"
#include "cohort/data/auto_augment.h"
#include "wings/vision/data/images/tensorflow/fill.h"
#include "wings/vision/data/images/tensorflow/pictures.h"

namespace cohort::augment {

namespace {

// Draws a share for each example, float32 [examples].
torch::Tensor beta_shares(double alpha, int64_t examples, const at::Generator& generator) {
  const torch::Tensor gammas =
      at::_standard_gamma(at::full({2, examples}, alpha, at::TensorOptions(torch::kDouble)), generator);
  const torch::Tensor sum = gammas.sum(0);
  return at::where(sum > 0, gammas[0] / sum, at::full({}, 0.5, sum.options())).to(torch::kFloat);
}

torch::Tensor smoothed(const torch::Tensor& labels, const MixupAndCutmixOptions& options) {
  const double off = options.label_smoothing / static_cast<double>(options.num_classes);
  return at::full({labels.size(0), options.num_classes}, off, at::TensorOptions(torch::kFloat))
      .scatter_(1, labels.unsqueeze(1), 1.0 - options.label_smoothing + off);
}

// Fills a rectangle of each picture and returns the shares of the area that stayed.
torch::Tensor cut(torch::Tensor& pictures, const torch::Tensor& shares, const at::Generator& generator) {
  const int64_t height = pictures.size(1);
  const int64_t width = pictures.size(2);
  const torch::Tensor before = pictures;
  std::vector<torch::Tensor> filled;
  std::vector<float> kept;
  for (int64_t i = 0; i < before.size(0); ++i) {
    const double side = std::sqrt(1.0 - shares[i].item<double>());
    const auto cut_height = static_cast<int64_t>(side * static_cast<double>(height));
    const auto cut_width = static_cast<int64_t>(side * static_cast<double>(width));
    const int64_t row = images::draw_below(height, generator);
    const int64_t column = images::draw_below(width, generator);
    filled.push_back(images::fill_rectangle(
        before[i], {.row = row, .column = column, .half_height = cut_height / 2, .half_width = cut_width / 2},
        before[before.size(0) - 1 - i]));
    kept.push_back(1.0F - static_cast<float>(cut_height * cut_width) / static_cast<float>(height * width));
  }
  pictures = at::stack(filled);
  return at::tensor(kept, at::TensorOptions(torch::kFloat));
}

void check_batch(const Example& batch, int64_t num_classes) {
  const bool pictures = batch.x.defined() && batch.x.dim() == 4 && batch.x.is_floating_point() && batch.x.numel() > 0;
  const bool labels =
      batch.y.defined() && batch.y.scalar_type() == torch::kLong && pictures && batch.y.numel() == batch.x.size(0);
  if (!pictures || !labels) {
    fail<InvalidArgument>(
        "[image] MixupAndCutmix: wanted x of floating point [examples, height, width, channels] and "
        "as many labels of int64, got ",
        batch.x.defined() ? c10::str(batch.x.scalar_type(), batch.x.sizes()) : std::string("nothing"), " and ",
        batch.y.defined() ? c10::str(batch.y.scalar_type(), batch.y.sizes()) : std::string("nothing"));
  }
  const auto least = batch.y.min().item<int64_t>();
  const auto most = batch.y.max().item<int64_t>();
  if (least >= 0 && most < num_classes) return;
  fail<InvalidArgument>("[image] MixupAndCutmix: labels are from ", least, " to ", most, ", there are ", num_classes,
                        " classes");
}

}  // namespace

MixupAndCutmix::MixupAndCutmix(MixupAndCutmixOptions options) : options_(options) {
  const bool alphas =
      options_.mixup_alpha >= 0.0 && options_.cutmix_alpha >= 0.0 && options_.mixup_alpha + options_.cutmix_alpha > 0.0;
  const bool probabilities = options_.prob >= 0.0 && options_.prob <= 1.0 && options_.switch_prob >= 0.0 &&
                             options_.switch_prob <= 1.0 && options_.label_smoothing >= 0.0 &&
                             options_.label_smoothing <= 1.0;
  if (alphas && probabilities && options_.num_classes >= 1) return;
  fail<InvalidArgument>("[image] MixupAndCutmix: mixup_alpha ", options_.mixup_alpha, ", cutmix_alpha ",
                        options_.cutmix_alpha, ", prob ", options_.prob, ", switch_prob ", options_.switch_prob,
                        ", label_smoothing ", options_.label_smoothing, " and ", options_.num_classes,
                        " classes; wanted an alpha above 0, probabilities from 0 to 1, and classes");
}

Example MixupAndCutmix::operator()(Example batch, at::Generator generator) const {
  check_batch(batch, options_.num_classes);
  const torch::Tensor labels = smoothed(batch.y.reshape({-1}), options_);
  batch.y = labels;
  if (images::draw_uniform(0.0, 1.0, generator) >= options_.prob) return batch;
  double cutmix = options_.switch_prob;
  if (options_.cutmix_alpha == 0.0) cutmix = 0.0;
  if (options_.mixup_alpha == 0.0) cutmix = 1.0;
  const bool cuts = images::draw_uniform(0.0, 1.0, generator) < cutmix;
  torch::Tensor shares = beta_shares(cuts ? options_.cutmix_alpha : options_.mixup_alpha, batch.x.size(0), generator);
  if (cuts) {
    shares = cut(batch.x, shares, generator);
  } else {
    const torch::Tensor of_pictures = shares.view({-1, 1, 1, 1}).to(batch.x.scalar_type());
    batch.x = of_pictures * batch.x + (1.0 - of_pictures) * batch.x.flip({0});
  }
  const torch::Tensor of_labels = shares.view({-1, 1});
  batch.y = of_labels * labels + (1.0 - of_labels) * labels.flip({0});
  return batch;
}

}  // namespace cohort::augment
