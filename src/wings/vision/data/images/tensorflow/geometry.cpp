// tf.image: what moves pixels without changing them.
#include <ATen/Functions.h>

#include <algorithm>

#include "base/fail.h"
#include "cohort/data/tf_image.h"
#include "wings/vision/data/images/tensorflow/pictures.h"

namespace cohort {

namespace images {

void require_pictures(const char* what, const torch::Tensor& images) {
  const bool fits = images.defined() && (images.dim() == 3 || images.dim() == 4);
  if (fits && images.numel() > 0) return;
  fail<InvalidArgument>("[image] ", what, ": wanted [height, width, channels] or a batch of that, with pixels, got ",
                        images.defined() ? c10::str(images.sizes()) : std::string("an undefined tensor"));
}

void require_colors(const char* what, const torch::Tensor& images) {
  require_pictures(what, images);
  if (images.size(-1) == 3) return;
  fail<InvalidArgument>("[image] ", what, ": wanted 3 channels in the last dimension, got ", images.sizes());
}

void require_bytes(const char* what, const torch::Tensor& image) {
  const bool fits = image.defined() && image.dim() == 3 && image.size(2) == 3 && image.numel() > 0;
  if (fits && image.scalar_type() == torch::kByte) return;
  fail<InvalidArgument>("[image] ", what, ": wanted uint8 [height, width, 3], got ",
                        image.defined() ? c10::str(image.scalar_type(), image.sizes()) : std::string("nothing"));
}

void require_size(const char* what, int64_t height, int64_t width) {
  if (height > 0 && width > 0) return;
  fail<InvalidArgument>("[image] ", what, ": the size ", height, " x ", width, " has to be positive");
}

double draw_uniform(double low, double high, const at::Generator& generator) {
  return low + (high - low) * at::rand({}, generator, at::TensorOptions(torch::kDouble)).item<double>();
}

int64_t draw_below(int64_t bound, const at::Generator& generator) {
  return at::randint(0, bound, {}, generator, at::TensorOptions(torch::kLong)).item<int64_t>();
}

}  // namespace images

namespace image {

using images::columns_of;
using images::draw_below;
using images::require_pictures;
using images::require_size;
using images::rows_of;

namespace {

// Mirrors along a dimension with probability 1/2, each image of a batch by itself.
torch::Tensor flip_some(const torch::Tensor& images, int64_t dim, const at::Generator& generator) {
  if (images.dim() == 3) return draw_below(2, generator) == 1 ? images.flip({dim}) : images;
  const torch::Tensor chosen =
      at::randint(0, 2, {images.size(0)}, generator, at::TensorOptions(torch::kLong)).to(torch::kBool);
  return at::where(chosen.to(images.device()).view({-1, 1, 1, 1}), images.flip({dim}), images);
}

}  // namespace

torch::Tensor resize_with_crop_or_pad(const torch::Tensor& images, int64_t height, int64_t width) {
  require_pictures("resize_with_crop_or_pad", images);
  require_size("resize_with_crop_or_pad", height, width);
  const int64_t more_rows = height - rows_of(images);
  const int64_t more_columns = width - columns_of(images);
  const torch::Tensor cut =
      crop_to_bounding_box(images, std::max<int64_t>(-more_rows / 2, 0), std::max<int64_t>(-more_columns / 2, 0),
                           std::min(height, rows_of(images)), std::min(width, columns_of(images)));
  return pad_to_bounding_box(cut, std::max<int64_t>(more_rows / 2, 0), std::max<int64_t>(more_columns / 2, 0), height,
                             width);
}

torch::Tensor crop_to_bounding_box(const torch::Tensor& images, int64_t top, int64_t left, int64_t height,
                                   int64_t width) {
  require_pictures("crop_to_bounding_box", images);
  require_size("crop_to_bounding_box", height, width);
  if (top < 0 || left < 0 || top + height > rows_of(images) || left + width > columns_of(images)) {
    fail<InvalidArgument>("[image] crop_to_bounding_box: ", height, " x ", width, " at ", top, ", ", left,
                          " does not lie in ", rows_of(images), " x ", columns_of(images));
  }
  return images.narrow(-3, top, height).narrow(-2, left, width);
}

torch::Tensor pad_to_bounding_box(const torch::Tensor& images, int64_t top, int64_t left, int64_t height,
                                  int64_t width) {
  require_pictures("pad_to_bounding_box", images);
  const int64_t below = height - top - rows_of(images);
  const int64_t right = width - left - columns_of(images);
  if (top < 0 || left < 0 || below < 0 || right < 0) {
    fail<InvalidArgument>("[image] pad_to_bounding_box: ", rows_of(images), " x ", columns_of(images), " at ", top,
                          ", ", left, " does not lie in ", height, " x ", width);
  }
  return at::constant_pad_nd(images, {0, 0, left, right, top, below});
}

torch::Tensor central_crop(const torch::Tensor& images, double fraction) {
  require_pictures("central_crop", images);
  if (!(fraction > 0.0 && fraction <= 1.0)) {
    fail<InvalidArgument>("[image] central_crop: the fraction is ", fraction, ", wanted a number in (0, 1]");
  }
  const auto before = [&](int64_t size) {
    const auto whole = static_cast<double>(size);
    return static_cast<int64_t>((whole - whole * fraction) / 2.0);
  };
  const int64_t top = before(rows_of(images));
  const int64_t left = before(columns_of(images));
  return crop_to_bounding_box(images, top, left, rows_of(images) - 2 * top, columns_of(images) - 2 * left);
}

torch::Tensor flip_left_right(const torch::Tensor& images) {
  require_pictures("flip_left_right", images);
  return images.flip({-2});
}

torch::Tensor flip_up_down(const torch::Tensor& images) {
  require_pictures("flip_up_down", images);
  return images.flip({-3});
}

torch::Tensor transpose(const torch::Tensor& images) {
  require_pictures("transpose", images);
  return images.transpose(-3, -2);
}

torch::Tensor rot90(const torch::Tensor& images, int64_t times) {
  require_pictures("rot90", images);
  return at::rot90(images, times, {images.dim() - 3, images.dim() - 2});
}

torch::Tensor random_flip_left_right(const torch::Tensor& images, at::Generator generator) {
  require_pictures("random_flip_left_right", images);
  return flip_some(images, -2, generator);
}

torch::Tensor random_flip_up_down(const torch::Tensor& images, at::Generator generator) {
  require_pictures("random_flip_up_down", images);
  return flip_some(images, -3, generator);
}

torch::Tensor random_crop(const torch::Tensor& images, int64_t height, int64_t width, at::Generator generator) {
  require_pictures("random_crop", images);
  require_size("random_crop", height, width);
  if (height > rows_of(images) || width > columns_of(images)) {
    fail<InvalidArgument>("[image] random_crop: ", height, " x ", width, " of images of ", rows_of(images), " x ",
                          columns_of(images));
  }
  const int64_t top = draw_below(rows_of(images) - height + 1, generator);
  return crop_to_bounding_box(images, top, draw_below(columns_of(images) - width + 1, generator), height, width);
}

}  // namespace image

}  // namespace cohort
