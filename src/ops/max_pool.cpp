// Takes pointers to the memory of tensors.
#include "ops/max_pool.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "base/parallel.h"
#include "ops/channels_last.h"
#include "ops/kernels/pooling.h"

namespace cohort {

namespace {

using channels_last::channels_at;
using channels_last::kGrain;

uint8_t* places_at(const torch::Tensor& places, int64_t element) {
  return reinterpret_cast<uint8_t*>(channels_at(places, element));
}

}  // namespace

MaxPool::MaxPool(const Window2& window, torch::IntArrayRef sizes)
    : shape_{.height = sizes[2],
             .width = sizes[3],
             .channels = sizes[1],
             .windows_down = window.height.output(sizes[2]),
             .windows_across = window.width.output(sizes[3]),
             .window_height = window.height.size,
             .window_width = window.width.size,
             .stride_down = window.height.stride,
             .stride_across = window.width.stride,
             .above = window.height.pads(sizes[2]).first,
             .left = window.width.pads(sizes[3]).first} {}

bool MaxPool::fits(const Window2& window) {
  return window.height.size * window.width.size <= kernels::kLargestPool && window.height.dilation == 1 &&
         window.width.dilation == 1;
}

std::vector<int64_t> MaxPool::image_sizes(int64_t number) const {
  return {number, shape_.channels, shape_.height, shape_.width};
}

std::vector<int64_t> MaxPool::result_sizes(int64_t number) const {
  return {number, shape_.channels, shape_.windows_down, shape_.windows_across};
}

void MaxPool::store(const torch::Tensor& y, const torch::Tensor& places, const torch::Tensor& images,
                    const torch::Tensor& bias, bool relu) const {
  const int64_t rows = images.size(0) * shape_.windows_down;
  parallel_for(rows, std::max<int64_t>(1, kGrain * rows / images.numel()), [&](int64_t begin, int64_t end) {
    kernels::PoolShape row = shape_;
    row.windows_down = 1;
    for (int64_t i = begin; i < end; ++i) {
      row.above = shape_.above - i % shape_.windows_down * shape_.stride_down;
      kernels::max_pool(channels_at(y, i * shape_.windows_across), places_at(places, i * shape_.windows_across),
                        channels_at(images, i / shape_.windows_down * shape_.height * shape_.width),
                        bias.defined() ? bias.data_ptr() : nullptr, row, relu, y.scalar_type());
    }
  });
}

void MaxPool::store_gradients(const torch::Tensor& dst, const torch::Tensor& sums, const torch::Tensor& gradient,
                              const torch::Tensor& y, const torch::Tensor& places) const {
  const int64_t size = shape_.height * shape_.width;
  const int64_t windows = shape_.windows_down * shape_.windows_across;
  const int64_t each = std::max<int64_t>(1, kGrain / (size * shape_.channels));
  parallel_for(dst.size(0), each, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      kernels::max_pool_gradient(channels_at(dst, i * size), channels_at(sums, i), channels_at(gradient, i * windows),
                                 y.defined() ? channels_at(y, i * windows) : nullptr, places_at(places, i * windows),
                                 shape_, dst.scalar_type());
    }
  });
}

torch::Tensor MaxPool::gradient_by_operations(const torch::Tensor& gradient, const torch::Tensor& places) const {
  const auto numbers = [&](int64_t n) { return at::arange(n, places.options().dtype(torch::kLong)); };
  const torch::Tensor place = places.to(torch::kLong);
  const torch::Tensor row = at::floor_divide(place, shape_.window_width) +
                            (numbers(shape_.windows_down) * shape_.stride_down - shape_.above).view({-1, 1});
  const torch::Tensor column =
      at::remainder(place, shape_.window_width) + numbers(shape_.windows_across) * shape_.stride_across - shape_.left;
  return at::zeros({gradient.size(0), shape_.channels, shape_.height * shape_.width}, gradient.options())
      .scatter_add(2, (row * shape_.width + column).flatten(2), gradient.flatten(2))
      .view(image_sizes(gradient.size(0)));
}

}  // namespace cohort
