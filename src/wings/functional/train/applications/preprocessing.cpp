// The preparation of pictures for the networks, and the names of the classes that they predict.
#include <ATen/Functions.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "base/regular_file.h"
#include "cohort/train/applications.h"
#include "cohort/train/layers/merging.h"
#include "train/layers/support.h"

namespace cohort::applications {

namespace {

// The changes of the three channels: (x - mean) / deviation.
struct Scaling {
  std::array<double, 3> mean;
  std::array<double, 3> deviation;
  bool reversed = false;  // the last channel comes first
};

constexpr Scaling kBlueGreenRed = {.mean = {103.939, 116.779, 123.68}, .deviation = {1.0, 1.0, 1.0}, .reversed = true};
constexpr Scaling kTorchvision = {.mean = {0.485 * 255.0, 0.456 * 255.0, 0.406 * 255.0},
                                  .deviation = {0.229 * 255.0, 0.224 * 255.0, 0.225 * 255.0}};

torch::Tensor scaled(const torch::Tensor& images, const Scaling& scaling) {
  if (images.dim() < 3 || images.size(-3) != 3) {
    fail<InvalidArgument>("[applications] preprocess_input: the pictures are ", images.sizes(),
                          ", wanted [..., 3, height, width]");
  }
  const torch::Tensor x = images.is_floating_point() ? images : images.to(torch::kFloat);
  std::vector<torch::Tensor> channels;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto from = static_cast<int64_t>(scaling.reversed ? 2 - i : i);
    channels.push_back((x.narrow(-3, from, 1) - scaling.mean[i]) / scaling.deviation[i]);
  }
  return at::cat(channels, -3);
}

SymbolicTensor scaled(const SymbolicTensor& images, const Scaling& scaling) {
  if (images.shape().size() != 3 || images.shape()[0] != 3) {
    fail<InvalidArgument>("[applications] preprocess_input: the pictures are ", to_text(images.shape()),
                          " an example, wanted [3, height, width]");
  }
  std::vector<SymbolicTensor> channels;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto from = static_cast<int64_t>(scaling.reversed ? 2 - i : i);
    channels.push_back((images.slice(1, from, from + 1) - scaling.mean[i]) / scaling.deviation[i]);
  }
  return Concatenate({.axis = 1})(channels);
}

// Returns the classes of a file, in their order.
std::vector<Prediction> classes_of(const std::filesystem::path& file) {
  const std::string who = "[applications] decode_predictions: " + file.string() + ": ";
  constexpr std::uintmax_t kMostBytes = 16 << 20;  // ImageNet's file has 35 kB
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(file, error);
  if (!error && bytes > kMostBytes) fail<DataLoss>(who, "it has ", bytes, " bytes, at most ", kMostBytes, " are read");
  const std::optional<std::string> text = read_regular_file(file, "applications");
  if (!text) fail<NotFound>(who, "there is no such file");
  const nlohmann::json classes = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!classes.is_object() || classes.empty()) fail<DataLoss>(who, "it is no JSON object of classes");
  std::vector<Prediction> list;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const auto found = classes.find(std::to_string(i));
    if (found == classes.end() || !found->is_array() || found->size() != 2 || !found->at(0).is_string() ||
        !found->at(1).is_string()) {
      fail<DataLoss>(who, "\"", i, "\" is not there as two texts, as in \"0\": [\"n01440764\", \"tench\"]");
    }
    list.push_back({.class_name = found->at(0), .description = found->at(1)});
  }
  return list;
}

}  // namespace

std::vector<std::vector<Prediction>> decode_predictions(const torch::Tensor& predictions,
                                                        const std::filesystem::path& class_index, int64_t top) {
  const std::vector<Prediction> classes = classes_of(class_index);
  const auto count = static_cast<int64_t>(classes.size());
  if (predictions.dim() != 2 || predictions.size(1) != count || !predictions.is_floating_point()) {
    fail<InvalidArgument>("[applications] decode_predictions: the predictions are ", predictions.dtype().name(), " ",
                          predictions.sizes(), ", wanted floating-point [examples, ", count, "] for the classes of ",
                          class_index.string());
  }
  if (top < 1 || top > count) {
    fail<InvalidArgument>("[applications] decode_predictions: top is ", top, ", wanted 1 to ", count);
  }
  const auto [scores, places] = at::topk(predictions.detach().cpu().to(torch::kDouble), top);
  std::vector<std::vector<Prediction>> all;
  for (int64_t row = 0; row < predictions.size(0); ++row) {
    std::vector<Prediction>& list = all.emplace_back();
    for (int64_t i = 0; i < top; ++i) {
      list.push_back(classes[static_cast<std::size_t>(places[row][i].item<int64_t>())]);
      list.back().score = scores[row][i].item<double>();
    }
  }
  return all;
}

torch::Tensor resnet::preprocess_input(const torch::Tensor& images) {
  return scaled(images, kBlueGreenRed);
}

SymbolicTensor resnet::preprocess_input(const SymbolicTensor& images) {
  return scaled(images, kBlueGreenRed);
}

torch::Tensor mobilenet_v2::preprocess_input(const torch::Tensor& images) {
  return (images.is_floating_point() ? images : images.to(torch::kFloat)) / 127.5 - 1.0;
}

SymbolicTensor mobilenet_v2::preprocess_input(const SymbolicTensor& images) {
  return images / 127.5 - 1.0;
}

torch::Tensor torchvision::preprocess_input(const torch::Tensor& images) {
  return scaled(images, kTorchvision);
}

SymbolicTensor torchvision::preprocess_input(const SymbolicTensor& images) {
  return scaled(images, kTorchvision);
}

}  // namespace cohort::applications
