// tf.image: other sizes. A new row is a weighted sum of old ones, and so is a new column: each method only says which
// rows and how much of each, as TensorFlow's kernels do (resize_bilinear_op, resize_bicubic_op, resize_area_op and
// scale_and_translate_op of tensorflow/core/kernels/image). The sums are taken tap by tap over whole images.
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "cohort/data/tf_image.h"
#include "wings/vision/data/images/tensorflow/pictures.h"

namespace cohort::image {

using images::columns_of;
using images::require_pictures;
using images::require_size;
using images::rows_of;

namespace {

// The input of every output for each tap, and its weight.
struct Taps {
  std::vector<std::vector<int64_t>> from;   // [tap][output]
  std::vector<std::vector<float>> weights;  // [tap][output]
};

// An output's inputs: `weights` of those from `first` on.
struct InputSpan {
  int64_t first = 0;
  std::vector<float> weights;
};

Taps taps_of(const std::vector<InputSpan>& spans, int64_t inputs) {
  std::size_t most = 0;
  for (const InputSpan& span : spans) most = std::max(most, span.weights.size());
  Taps taps;
  for (std::size_t tap = 0; tap < most; ++tap) {
    std::vector<int64_t> from;
    std::vector<float> weights;
    for (const InputSpan& span : spans) {
      const bool there = tap < span.weights.size();
      from.push_back(std::clamp<int64_t>(span.first + static_cast<int64_t>(tap), 0, inputs - 1));
      weights.push_back(there ? span.weights[tap] : 0.0F);
    }
    taps.from.push_back(std::move(from));
    taps.weights.push_back(std::move(weights));
  }
  return taps;
}

void normalize(std::vector<float>& weights) {
  float sum = 0.0F;
  for (const float weight : weights) sum += weight;
  if (std::abs(sum) < 1000.0F * std::numeric_limits<float>::min()) return;
  for (float& weight : weights) weight /= sum;
}

std::vector<InputSpan> bilinear_spans(int64_t in, int64_t out) {
  const float scale = static_cast<float>(in) / static_cast<float>(out);
  std::vector<InputSpan> spans;
  for (int64_t i = 0; i < out; ++i) {
    const float place = (static_cast<float>(i) + 0.5F) * scale - 0.5F;
    const float below = std::floor(place);
    const float share = place - below;
    const auto first = static_cast<int64_t>(below);
    if (first < 0 || first + 1 >= in) {
      spans.push_back({std::clamp<int64_t>(first, 0, in - 1), {1.0F}});
    } else {
      spans.push_back({first, {1.0F - share, share}});
    }
  }
  return spans;
}

// Keys' kernel with a = -0.5, at a distance from the pixel.
float keys_cubic(float x) {
  if (x >= 2.0F) return 0.0F;
  if (x >= 1.0F) return ((-0.5F * x + 2.5F) * x - 4.0F) * x + 2.0F;
  return ((1.5F * x - 2.5F) * x) * x + 1.0F;
}

// TensorFlow looks the kernel up in a table of 1024 steps. Pixels outside have no weight.
std::vector<InputSpan> bicubic_spans(int64_t in, int64_t out) {
  constexpr float kSteps = 1024.0F;
  const float scale = static_cast<float>(in) / static_cast<float>(out);
  std::vector<InputSpan> spans;
  for (int64_t i = 0; i < out; ++i) {
    const float place = (static_cast<float>(i) + 0.5F) * scale - 0.5F;
    const float below = std::floor(place);
    const float step = std::nearbyint((place - below) * kSteps) / kSteps;
    const auto middle = static_cast<int64_t>(below);
    InputSpan span;
    span.first = std::max<int64_t>(middle - 1, 0);
    for (int64_t from = middle - 1; from <= middle + 2; ++from) {
      if (from < 0 || from >= in) continue;
      span.weights.push_back(keys_cubic(std::abs(static_cast<float>(from - middle) - step)));
    }
    normalize(span.weights);
    spans.push_back(std::move(span));
  }
  return spans;
}

// Each output is the mean of the inputs that it covers, in whole or in part.
std::vector<InputSpan> area_spans(int64_t in, int64_t out) {
  const float scale = static_cast<float>(in) / static_cast<float>(out);
  std::vector<InputSpan> spans;
  for (int64_t i = 0; i < out; ++i) {
    const float begin = static_cast<float>(i) * scale;
    const float end = static_cast<float>(i + 1) * scale;
    InputSpan span;
    span.first = static_cast<int64_t>(std::floor(begin));
    const auto last = std::min<int64_t>(static_cast<int64_t>(std::ceil(end)), in);
    for (int64_t from = span.first; from < last; ++from) {
      const float covered = std::min(static_cast<float>(from + 1), end) - std::max(static_cast<float>(from), begin);
      span.weights.push_back(covered / scale);
    }
    spans.push_back(std::move(span));
  }
  return spans;
}

float lanczos(float x, float radius) {
  constexpr float kPi = 3.14159265358979323846F;
  if (x > radius) return 0.0F;
  if (x <= 1e-3F) return 1.0F;
  return radius * std::sin(kPi * x) * std::sin(kPi * x / radius) / (kPi * kPi * x * x);
}

float mitchell_cubic(float x) {
  if (x >= 2.0F) return 0.0F;
  if (x >= 1.0F) return ((-7.0F / 18.0F * x + 2.0F) * x - 10.0F / 3.0F) * x + 16.0F / 9.0F;
  return ((7.0F / 6.0F * x - 2.0F) * x) * x + 8.0F / 9.0F;
}

float radius_of(ResizeMethod method) {
  switch (method) {
    case ResizeMethod::kLanczos3:
      return 3.0F;
    case ResizeMethod::kLanczos5:
      return 5.0F;
    case ResizeMethod::kGaussian:
      return 1.5F;
    case ResizeMethod::kBilinear:
      return 1.0F;
    default:
      return 2.0F;
  }
}

float kernel_at(ResizeMethod method, float x) {
  switch (method) {
    case ResizeMethod::kLanczos3:
    case ResizeMethod::kLanczos5:
      return lanczos(x, radius_of(method));
    case ResizeMethod::kGaussian:  // a deviation of a third of the radius
      return x >= 1.5F ? 0.0F : std::exp(-x * x / 0.5F);
    case ResizeMethod::kBilinear:
      return std::max(0.0F, 1.0F - x);
    case ResizeMethod::kBicubic:
      return keys_cubic(x);
    default:
      return mitchell_cubic(x);
  }
}

std::vector<InputSpan> kernel_spans(int64_t in, int64_t out, const ResizeOptions& options) {
  const float scale = 1.0F / (static_cast<float>(out) / static_cast<float>(in));
  const float stretch = options.antialias ? std::max(scale, 1.0F) : 1.0F;
  const float reach = radius_of(options.method) * stretch;
  std::vector<InputSpan> spans;
  for (int64_t i = 0; i < out; ++i) {
    const float place = (static_cast<float>(i) + 0.5F) * scale;
    const auto last = std::clamp<int64_t>(static_cast<int64_t>(std::floor(place + reach - 0.5F)), 0, in - 1);
    InputSpan span;
    span.first = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(place - reach - 0.5F)), 0, in - 1);
    for (int64_t from = span.first; from <= last; ++from) {
      span.weights.push_back(
          kernel_at(options.method, std::abs(static_cast<float>(from) + 0.5F - place) * (1.0F / stretch)));
    }
    normalize(span.weights);
    spans.push_back(std::move(span));
  }
  return spans;
}

std::vector<InputSpan> spans_for(int64_t in, int64_t out, const ResizeOptions& options) {
  if (options.method == ResizeMethod::kArea) return area_spans(in, out);
  if (!options.antialias && options.method == ResizeMethod::kBilinear) return bilinear_spans(in, out);
  if (!options.antialias && options.method == ResizeMethod::kBicubic) return bicubic_spans(in, out);
  return kernel_spans(in, out, options);
}

torch::Tensor resize_dimension(const torch::Tensor& images, int64_t dim, int64_t out, const ResizeOptions& options) {
  const Taps taps = taps_of(spans_for(images.size(dim), out, options), images.size(dim));
  std::vector<int64_t> shape(static_cast<std::size_t>(images.dim()), 1);
  shape[static_cast<std::size_t>(dim)] = out;
  torch::Tensor sum;
  for (std::size_t tap = 0; tap < taps.from.size(); ++tap) {
    const torch::Tensor from = at::tensor(taps.from[tap], at::TensorOptions(torch::kLong)).to(images.device());
    const torch::Tensor weights = at::tensor(taps.weights[tap], at::TensorOptions(torch::kFloat)).to(images.device());
    const torch::Tensor part = images.index_select(dim, from) * weights.view(shape);
    sum = sum.defined() ? sum.add_(part) : part;
  }
  return sum;
}

torch::Tensor nearest_dimension(const torch::Tensor& images, int64_t dim, int64_t out) {
  const int64_t in = images.size(dim);
  const float scale = static_cast<float>(in) / static_cast<float>(out);
  std::vector<int64_t> from;
  for (int64_t i = 0; i < out; ++i) {
    from.push_back(std::min(static_cast<int64_t>(std::floor((static_cast<float>(i) + 0.5F) * scale)), in - 1));
  }
  return images.index_select(dim, at::tensor(from, at::TensorOptions(torch::kLong)).to(images.device()));
}

// Along one side of a box, the places between which TensorFlow interpolates.
std::vector<float> places_in_box(float begin, float end, int64_t in, int64_t out) {
  const auto last = static_cast<float>(in - 1);
  const float step = out > 1 ? (end - begin) * last / static_cast<float>(out - 1) : 0.0F;
  std::vector<float> places;
  for (int64_t i = 0; i < out; ++i) {
    places.push_back(out > 1 ? begin * last + static_cast<float>(i) * step : 0.5F * (begin + end) * last);
  }
  return places;
}

// Interpolates one dimension of an image at these places; outside[i] tells those that lie outside.
torch::Tensor sample_dimension(const torch::Tensor& image, int64_t dim, const std::vector<float>& places,
                               ResizeMethod method, torch::Tensor& outside) {
  const int64_t last = image.size(dim) - 1;
  std::vector<int64_t> below, above;
  std::vector<float> shares;
  outside = at::zeros({static_cast<int64_t>(places.size())}, at::TensorOptions(torch::kBool));
  for (std::size_t i = 0; i < places.size(); ++i) {
    const bool inside = places[i] >= 0.0F && places[i] <= static_cast<float>(last);
    const float place = inside ? places[i] : 0.0F;
    if (!inside) outside[static_cast<int64_t>(i)] = true;
    const float floor = method == ResizeMethod::kNearest ? std::round(place) : std::floor(place);
    below.push_back(static_cast<int64_t>(floor));
    above.push_back(std::min(static_cast<int64_t>(std::ceil(place)), last));
    shares.push_back(place - floor);
  }
  torch::Tensor first = image.index_select(dim, at::tensor(below, at::TensorOptions(torch::kLong)));
  if (method == ResizeMethod::kNearest) return first;
  const torch::Tensor second = image.index_select(dim, at::tensor(above, at::TensorOptions(torch::kLong)));
  std::vector<int64_t> shape = {1, 1, 1};
  shape[static_cast<std::size_t>(dim)] = static_cast<int64_t>(places.size());
  return first + (second - first) * at::tensor(shares, at::TensorOptions(torch::kFloat)).view(shape);
}

void check_boxes(const torch::Tensor& images, const torch::Tensor& boxes, const torch::Tensor& box_indices,
                 const CropAndResizeOptions& options) {
  if (options.method != ResizeMethod::kBilinear && options.method != ResizeMethod::kNearest) {
    fail<InvalidArgument>("[image] crop_and_resize: the method has to be kBilinear or kNearest");
  }
  const bool fits = boxes.defined() && boxes.dim() == 2 && boxes.size(1) == 4 && box_indices.defined() &&
                    box_indices.dim() == 1 && box_indices.size(0) == boxes.size(0);
  if (images.dim() != 4 || !fits) {
    fail<InvalidArgument>("[image] crop_and_resize: wanted a batch of images, boxes [n, 4] and box_indices [n], got ",
                          images.sizes(), ", ", boxes.defined() ? c10::str(boxes.sizes()) : std::string("nothing"),
                          " and ", box_indices.defined() ? c10::str(box_indices.sizes()) : std::string("nothing"));
  }
  if (boxes.size(0) == 0) return;
  const auto least = box_indices.min().item<int64_t>();
  const auto most = box_indices.max().item<int64_t>();
  if (least >= 0 && most < images.size(0)) return;
  fail<InvalidArgument>("[image] crop_and_resize: box_indices are from ", least, " to ", most, ", there are ",
                        images.size(0), " images");
}

}  // namespace

torch::Tensor resize(const torch::Tensor& images, int64_t height, int64_t width, const ResizeOptions& options) {
  require_pictures("resize", images);
  require_size("resize", height, width);
  const int64_t rows = rows_of(images);
  const int64_t columns = columns_of(images);
  if (options.preserve_aspect_ratio) {
    const double scale = std::min(static_cast<double>(height) / static_cast<double>(rows),
                                  static_cast<double>(width) / static_cast<double>(columns));
    height = std::max<int64_t>(1, static_cast<int64_t>(std::nearbyint(scale * static_cast<double>(rows))));
    width = std::max<int64_t>(1, static_cast<int64_t>(std::nearbyint(scale * static_cast<double>(columns))));
  }
  if (height == rows && width == columns) return images;
  const int64_t dim = images.dim() - 3;
  if (options.method == ResizeMethod::kNearest) {
    return nearest_dimension(nearest_dimension(images, dim, height), dim + 1, width);
  }
  return resize_dimension(resize_dimension(images.to(torch::kFloat), dim, height, options), dim + 1, width, options);
}

torch::Tensor resize_with_pad(const torch::Tensor& images, int64_t height, int64_t width,
                              const ResizeOptions& options) {
  require_pictures("resize_with_pad", images);
  require_size("resize_with_pad", height, width);
  const auto rows = static_cast<float>(rows_of(images));
  const auto columns = static_cast<float>(columns_of(images));
  const float ratio = std::max(columns / static_cast<float>(width), rows / static_cast<float>(height));
  const float new_rows = rows / ratio;
  const float new_columns = columns / ratio;
  const auto place = [](int64_t whole, float part) {
    return std::max<int64_t>(0, static_cast<int64_t>(std::floor((static_cast<float>(whole) - part) / 2.0F)));
  };
  const torch::Tensor resized = resize(images, std::max<int64_t>(1, static_cast<int64_t>(new_rows)),
                                       std::max<int64_t>(1, static_cast<int64_t>(new_columns)), options);
  return pad_to_bounding_box(resized, place(height, new_rows), place(width, new_columns), height, width);
}

torch::Tensor crop_and_resize(const torch::Tensor& images, const torch::Tensor& boxes, const torch::Tensor& box_indices,
                              int64_t height, int64_t width, const CropAndResizeOptions& options) {
  require_pictures("crop_and_resize", images);
  require_size("crop_and_resize", height, width);
  check_boxes(images, boxes, box_indices, options);
  const torch::Tensor places = boxes.to(torch::kCPU, torch::kFloat);
  std::vector<torch::Tensor> crops;
  for (int64_t i = 0; i < boxes.size(0); ++i) {
    const torch::Tensor box = places[i];
    const torch::Tensor image = images[box_indices[i].item<int64_t>()].to(torch::kCPU, torch::kFloat);
    const auto side = [&](int64_t dim, int64_t size) {
      return places_in_box(box[dim].item<float>(), box[dim + 2].item<float>(), image.size(dim), size);
    };
    torch::Tensor no_row, no_column;
    torch::Tensor crop = sample_dimension(image, 0, side(0, height), options.method, no_row);
    crop = sample_dimension(crop, 1, side(1, width), options.method, no_column);
    crops.push_back(
        crop.masked_fill(no_row.view({-1, 1, 1}) | no_column.view({1, -1, 1}), options.extrapolation_value));
  }
  if (crops.empty()) return at::empty({0, height, width, images.size(3)}, images.options().dtype(torch::kFloat));
  return at::stack(crops).to(images.device());
}

}  // namespace cohort::image
