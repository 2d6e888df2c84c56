// What the layers have in common: checks with good messages, parameters, and the arithmetic of sliding windows.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <utility>

#include "base/fail.h"
#include "cohort/train/layers.h"

namespace cohort {

// "[784]", "[3, ?, ?]"
std::string to_text(const Shape& shape);

// "[batch, 3, 28, 28]" of a tensor that came, for messages.
[[noreturn]] void fail_input(const std::string& layer, std::string_view type, const std::string& came,
                             const std::string& wanted);

// An option that makes no sense: "[layers] Dense: units ...".
template <typename... Parts>
[[noreturn]] void fail_option(std::string_view type, const Parts&... parts) {
  fail<InvalidArgument>("[layers] ", type, ": ", parts...);
}

// Checks a call's input: `rank` dimensions (0: two or more) with `size` in dimension `dim`, floating point.
void check_input(const std::string& layer, std::string_view type, const torch::Tensor& x, int64_t rank, int64_t dim,
                 int64_t size);
[[noreturn]] void fail_called(const std::string& layer, std::string_view type, const torch::Tensor& x,
                              const std::string& wanted);

// A layer whose kind is K(options).
template <typename Kind, typename Options>
Layer make_layer(const Options& options, bool trainable = true) {
  return Layer(std::make_shared<Kind>(options), options.name, trainable);
}

// forward() is activation() of convolve().
class ConvolutionModule : public LayerModule {
 public:
  virtual torch::Tensor convolve(const torch::Tensor& x) = 0;
  virtual const Activation& activation() const = 0;
};

class PoolingModule : public LayerModule {
 public:
  virtual bool takes_maximum() const = 0;
};

// Along one dimension of a convolution or a pooling.
struct Window {
  int64_t size = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  Padding padding = Padding::kValid;

  int64_t reach() const { return (size - 1) * dilation + 1; }
  int64_t output(int64_t input) const;  // -1 for -1
  // Zeros before and after.
  std::pair<int64_t, int64_t> pads(int64_t input) const;
};

struct Window2 {
  Window height;
  Window width;
};
Window2 make_window(Size2 size, Size2 stride, Size2 dilation, Padding padding);

// Channels, height and width of an image's shape; with `may_add_channel` [height, width] is one channel.
Shape image_shape(const BuildContext& context, std::string_view type, bool may_add_channel);
// The spatial output; InvalidArgument when the window does not fit.
Shape window_output(const BuildContext& context, std::string_view type, const Shape& image, int64_t channels,
                    const Window2& window);

}  // namespace cohort
