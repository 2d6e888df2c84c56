// Pictures that are changed on devices. Kernels take pointers into tensors of the memory that they reach.
#include "cohort/data/device_images.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/fail.h"
#include "base/parallel.h"
#include "data/device_map.h"
#include "data/node.h"
#include "wings/vision/data/images/draws.h"
#include "wings/vision/data/images/kernels/picture_table.h"
#include "wings/vision/data/images/require.h"

namespace cohort {

namespace {

constexpr int64_t kDraws = 3;  // top, left and whether it is flipped

std::string tensor_text(const torch::Tensor& tensor) {
  return tensor.defined() ? c10::str(tensor.scalar_type(), " ", tensor.sizes()) : std::string("nothing");
}

kernels::Outside outside_of(PaddingMode mode) {
  if (mode == PaddingMode::kEdge) return kernels::Outside::kEdge;
  if (mode == PaddingMode::kReflect) return kernels::Outside::kReflect;
  return mode == PaddingMode::kSymmetric ? kernels::Outside::kSymmetric : kernels::Outside::kZeros;
}

// Returns the places of a line that pixels of the result are taken from; those outside are moved inside as the mode
// says. The same as source_of() of the kernel.
torch::Tensor moved_inside(const torch::Tensor& places, int64_t size, PaddingMode mode) {
  if (mode == PaddingMode::kConstant || mode == PaddingMode::kEdge) return places.clamp(0, size - 1);
  const int64_t shared = mode == PaddingMode::kReflect ? 0 : 1;
  const torch::Tensor low = at::where(places < 0, -places - shared, places);
  return at::where(places < size, low, 2 * size - 2 + shared - places).clamp(0, size - 1);
}

torch::Tensor is_inside(const torch::Tensor& places, int64_t size) {
  return (places >= 0).logical_and_(places < size);
}

}  // namespace

class PictureMap {
 public:
  explicit PictureMap(const DeviceImageOptions& options) : options_(options) {
    const std::size_t channels = options.mean.size();
    if (channels < 1 || channels > kernels::kMostChannels || options.deviation.size() != channels) {
      fail<InvalidArgument>("[image] DeviceImages: ", channels, " means and ", options.deviation.size(),
                            " deviations, wanted as many, of 1 to ", kernels::kMostChannels, " channels");
    }
    if (options.flip_probability && !(*options.flip_probability >= 0.0 && *options.flip_probability <= 1.0)) {
      fail<InvalidArgument>("[image] DeviceImages: flip_probability is ", *options.flip_probability, ", wanted 0 to 1");
    }
    if (!at::isFloatingType(options.dtype)) {
      fail<InvalidArgument>("[image] DeviceImages: dtype is ", options.dtype, ", wanted a floating-point one");
    }
    if (options.planes && channels != 1) {
      fail<InvalidArgument>("[image] DeviceImages: planes of ", channels, " channels, wanted 1");
    }
  }

  Example operator()(const Example& batch, kernels::Reach reach) const {
    require_pictures(batch.x);
    Example result = batch;
    torch::Tensor draws;
    if (draws_numbers()) {
      require_draws(batch);
      draws = result.more.back();
      result.more.pop_back();
    }
    torch::Tensor x = reach == kernels::Reach::kNone ? by_operations(batch.x, draws) : by_kernel(batch.x, draws, reach);
    if (options_.planes) x = x.squeeze(1);
    result.x = x.to(options_.dtype);
    return result;
  }

  Example draw(Example example, const at::Generator& generator) const {
    images::require_image("DeviceImages", example.x);
    images::CropPlace place;
    if (options_.crop) {
      const DeviceCrop& crop = *options_.crop;
      const auto [rows, columns] = std::pair(example.x.size(1), example.x.size(2));
      images::require_crop(rows, columns, crop.height, crop.width, crop.options);
      place = images::draw_crop(rows, columns, crop.height, crop.width, generator, crop.options);
    }
    const bool flipped = options_.flip_probability && images::draw_flip(generator, *options_.flip_probability);
    example.x = example.x.contiguous();
    if (draws_numbers()) {
      example.more.push_back(at::tensor(std::vector<int64_t>{place.top, place.left, flipped ? 1 : 0}, torch::kLong));
    }
    return example;
  }

 private:
  bool draws_numbers() const { return options_.crop || options_.flip_probability; }
  int64_t height(const torch::Tensor& x) const { return options_.crop ? options_.crop->height : x.size(2); }
  int64_t width(const torch::Tensor& x) const { return options_.crop ? options_.crop->width : x.size(3); }
  int64_t padding() const { return options_.crop ? options_.crop->options.padding : 0; }
  PaddingMode padding_mode() const {
    return options_.crop ? options_.crop->options.padding_mode : PaddingMode::kConstant;
  }
  double factor(std::size_t channel) const { return 1.0 / (255.0 * options_.deviation[channel]); }
  double offset(std::size_t channel) const { return options_.mean[channel] / options_.deviation[channel]; }

  void require_pictures(const torch::Tensor& x) const {
    const auto channels = static_cast<int64_t>(options_.mean.size());
    if (!x.defined() || x.scalar_type() != torch::kByte || x.dim() != 4 || x.size(1) != channels) {
      fail<InvalidArgument>("[image] DeviceImages: x is ", tensor_text(x), ", wanted uint8 [examples, ", channels,
                            ", height, width]");
    }
    if (options_.crop) {
      images::require_crop(x.size(2), x.size(3), options_.crop->height, options_.crop->width, options_.crop->options);
    }
  }

  static void require_draws(const Example& batch) {
    const torch::Tensor draws = batch.more.empty() ? torch::Tensor() : batch.more.back();
    const bool fits = draws.defined() && draws.scalar_type() == torch::kLong && draws.dim() == 2 &&
                      draws.size(0) == batch.x.size(0) && draws.size(1) == kDraws && draws.is_contiguous();
    if (fits) return;
    fail<InvalidArgument>("[image] DeviceImages: the last column of `more` is ", tensor_text(draws), ", wanted int64 [",
                          batch.x.size(0), ", ", kDraws, "], which the pictures get by random_map(images)");
  }

  torch::Tensor by_kernel(const torch::Tensor& x, const torch::Tensor& draws, kernels::Reach reach) const {
    kernels::PictureArgs args{.from = x.data_ptr<uint8_t>(),
                              .channels = x.size(1),
                              .in_height = x.size(2),
                              .in_width = x.size(3),
                              .height = height(x),
                              .width = width(x),
                              .padding = padding(),
                              .outside = outside_of(padding_mode()),
                              .draws = draws.defined() ? draws.data_ptr<int64_t>() : nullptr};
    std::copy_n(x.strides().begin(), 4, args.strides);
    for (std::size_t c = 0; c < options_.mean.size(); ++c) {
      args.factors[c] = static_cast<float>(factor(c));
      args.offsets[c] = static_cast<float>(offset(c));
    }
    torch::Tensor result =
        at::empty({x.size(0), args.channels, args.height, args.width}, x.options().dtype(torch::kFloat));
    auto* const to = result.data_ptr<float>();
    const auto change = kernels::picture_table(reach).crop_flip_normalize;
    if (reach == kernels::Reach::kCuda) {
      change(to, x.size(0), args);
      return result;
    }
    parallel_for(x.size(0), /*grain=*/1, [&](int64_t begin, int64_t end) {
      kernels::PictureArgs part = args;
      part.from += begin * args.strides[0];
      if (part.draws != nullptr) part.draws += begin * kDraws;
      change(to + begin * args.channels * args.height * args.width, end - begin, part);
    });
    return result;
  }

  // Does the same by operations, of which each pixel gets the same roundings.
  torch::Tensor by_operations(const torch::Tensor& x, const torch::Tensor& draws) const {
    torch::Tensor part = draws.defined() ? taken(x, draws) : x;
    torch::Tensor result = part.to(torch::kFloat);
    for (std::size_t c = 0; c < options_.mean.size(); ++c) {
      result.select(1, static_cast<int64_t>(c)).mul_(factor(c)).sub_(offset(c));
    }
    return result;
  }

  // Returns the bytes of the parts, flipped where they are.
  torch::Tensor taken(const torch::Tensor& x, const torch::Tensor& draws) const {
    const auto places = [&](int64_t which, int64_t count) {  // [examples, count], not flipped
      return draws.select(1, which).unsqueeze(1) - padding() + at::arange(count, draws.options());
    };
    const torch::Tensor rows = places(0, height(x));
    const torch::Tensor onward = places(1, width(x));
    const torch::Tensor columns = at::where(draws.select(1, 2).unsqueeze(1) != 0, onward.flip({1}), onward);
    const auto [in_height, in_width] = std::pair(x.size(2), x.size(3));
    const torch::Tensor from_rows = moved_inside(rows, in_height, padding_mode()).unsqueeze(1).unsqueeze(3);
    const torch::Tensor from_columns = moved_inside(columns, in_width, padding_mode()).unsqueeze(1).unsqueeze(2);
    torch::Tensor part = x.gather(2, from_rows.expand({-1, x.size(1), -1, in_width}));
    part = part.gather(3, from_columns.expand({-1, x.size(1), height(x), -1}));
    if (padding_mode() != PaddingMode::kConstant) return part;
    const torch::Tensor inside =
        is_inside(rows, in_height).unsqueeze(2).logical_and(is_inside(columns, in_width).unsqueeze(1));
    return part * inside.unsqueeze(1);
  }

  DeviceImageOptions options_;
};

DeviceImages::DeviceImages(const DeviceImageOptions& options) : map_(std::make_shared<PictureMap>(options)) {}

Example DeviceImages::operator()(Example example, at::Generator generator) const {
  return map_->draw(std::move(example), generator);
}

Dataset DeviceImages::finish(const Dataset& batches) const {
  if (!batches.is_batched()) {
    fail<InvalidArgument>("[image] DeviceImages: finish() takes batches; call batch() on the dataset before");
  }
  const auto change = [map = map_](const Example& batch, kernels::Reach reach) { return (*map)(batch, reach); };
  return batches.derived(make_device_map(batches.node(), std::make_shared<const DeviceMap>(change)));
}

}  // namespace cohort
