// Convolutions of any number of spatial dimensions, strided, dilated, grouped, transposed, and their gradients. The
// gradient of the input is a convolution with the kernel reversed and the strides as dilation of the gradient; that of
// the kernel is a convolution of the input with the gradient as the kernel.
#include <algorithm>
#include <utility>

#include "wings/xla/record/stablehlo/families.h"

namespace cohort::record::stablehlo {

namespace {

// The hyperparameters, as LibTorch's convolution has them from an argument on.
struct Shape {
  Dims stride, padding, dilation, output_padding;
  bool transposed = false;
  int64_t groups = 1;
};

Shape shape_of(Lowering& op, std::size_t at, int64_t spatial) {
  return {.stride = repeated(op.ints(at), spatial),
          .padding = repeated(op.ints(at + 1), spatial),
          .dilation = repeated(op.ints(at + 2), spatial),
          .output_padding = repeated(op.ints(at + 4), spatial),
          .transposed = op.flag(at + 3),
          .groups = op.integer(at + 5)};
}

// "b, f, 0, 1" for the first two names and two spatial dimensions.
std::string numbers(const std::string& first, const std::string& second, int64_t spatial) {
  std::string text = first + ", " + second;
  for (int64_t d = 0; d < spatial; ++d) text += ", " + std::to_string(d);
  return text;
}

Dims ones(int64_t n) {
  return Dims(static_cast<std::size_t>(n), 1);
}

// Swaps the two channel dimensions within each group: [g * a, b, ...] becomes [g * b, a, ...].
Operand swap_channels(Text& t, const Operand& kernel, int64_t groups) {
  if (groups == 1) {
    Dims order = all_dims(kernel.rank());
    std::swap(order[0], order[1]);
    return t.transpose(kernel, order);
  }
  const Dims& s = kernel.sizes;
  Dims split{groups, s[0] / groups, s[1]};
  split.insert(split.end(), s.begin() + 2, s.end());
  Dims order = all_dims(kernel.rank() + 1);
  std::swap(order[1], order[2]);
  Dims joined{groups * s[1], s[0] / groups};
  joined.insert(joined.end(), s.begin() + 2, s.end());
  return t.reshape(t.transpose(t.reshape(kernel, split), order), joined);
}

// x with a kernel of [out, in / groups, ...].
Operand forward(Text& t, const Operand& x, const Operand& kernel, const Shape& c, const Dims& sizes) {
  const int64_t spatial = x.rank() - 2;
  const ConvolutionText text{.input = numbers("b", "f", spatial),
                             .kernel = numbers("o", "i", spatial),
                             .output = numbers("b", "f", spatial),
                             .stride = c.stride,
                             .low = c.padding,
                             .high = c.padding,
                             .lhs_dilation = ones(spatial),
                             .rhs_dilation = c.dilation,
                             .feature_groups = c.groups};
  return t.convolution(x, kernel, text, sizes);
}

// The gradient of forward()'s x from that of its result; also the transposed convolution.
Operand input_gradient(Text& t, const Operand& g, const Operand& kernel, const Shape& c, const Dims& sizes) {
  const int64_t spatial = g.rank() - 2;
  Dims low;
  Dims high;
  Dims turned;
  for (int64_t d = 0; d < spatial; ++d) {
    const auto i = static_cast<std::size_t>(d);
    const int64_t extent = (kernel.size(d + 2) - 1) * c.dilation[i];
    const int64_t dilated = (g.size(d + 2) - 1) * c.stride[i] + 1;
    low.push_back(extent - c.padding[i]);
    high.push_back(sizes[i + 2] + extent - dilated - low.back());
    turned.push_back(d + 2);
  }
  const ConvolutionText text{.input = numbers("b", "f", spatial),
                             .kernel = numbers("o", "i", spatial),
                             .output = numbers("b", "f", spatial),
                             .stride = ones(spatial),
                             .low = low,
                             .high = high,
                             .lhs_dilation = c.stride,
                             .rhs_dilation = c.dilation,
                             .feature_groups = c.groups};
  return t.convolution(g, t.reverse(swap_channels(t, kernel, c.groups), turned), text, sizes);
}

// The gradient of forward()'s kernel: channels of x are its batch.
Operand kernel_gradient(Text& t, const Operand& x, const Operand& g, const Shape& c, const Dims& sizes) {
  const int64_t spatial = x.rank() - 2;
  Dims high;
  for (std::size_t i = 0; i < static_cast<std::size_t>(spatial); ++i) {
    const int64_t dilated = (g.sizes[i + 2] - 1) * c.stride[i] + 1;
    const int64_t wanted = (sizes[i + 2] - 1) * c.dilation[i];
    high.push_back(dilated + wanted - x.sizes[i + 2] - c.padding[i]);
  }
  const ConvolutionText text{.input = numbers("f", "b", spatial),
                             .kernel = numbers("i", "o", spatial),
                             .output = numbers("f", "b", spatial),
                             .stride = c.dilation,
                             .low = c.padding,
                             .high = high,
                             .lhs_dilation = ones(spatial),
                             .rhs_dilation = c.stride,
                             .batch_groups = c.groups};
  Dims swapped = sizes;
  std::swap(swapped[0], swapped[1]);
  ConvolutionText own = text;
  own.output = numbers("b", "f", spatial);
  Dims order = all_dims(x.rank());
  std::swap(order[0], order[1]);
  // The batch of the result are x's channels in a group, its features the channels of g.
  return t.transpose(t.convolution(x, g, own, swapped), order);
}

Operand sum_but_channels(Text& t, const Operand& g) {
  Dims dims = all_dims(g.rank());
  dims.erase(dims.begin() + 1);
  return t.reduce("add", g, dims, 0.0);
}

// Returns the operands of a kernel's gradient, whole on every core where an image has so few rows or columns that a
// core may have one of them. XLA's partitioner divides such an image wrongly (seen with the plugin for CPUs 0.0.1: cut
// 2 x 2, one of height and width at most 2 and the other one above it), and without a word.
std::pair<Operand, Operand> of_small_images(Lowering& op, const Operand& x, const Operand& g) {
  const auto small = [&](const Operand& image) {
    return std::any_of(image.sizes.begin() + 2, image.sizes.end(), [&](int64_t size) { return size <= op.cores(); });
  };
  if (op.cores() == 1 || (!small(x) && !small(g))) return {x, g};
  return {op.text().shard(x, ones(x.rank())), op.text().shard(g, ones(g.rank()))};
}

void convolution(Lowering& op) {
  Text& t = op.text();
  const Operand x = op.in(0);
  const Shape c = shape_of(op, 3, x.rank() - 2);
  Operand y =
      c.transposed ? input_gradient(t, x, op.in(1), c, op.out().sizes) : forward(t, x, op.in(1), c, op.out().sizes);
  if (op.has(2)) y = t.binary("add", y, t.broadcast(op.in(2), y.sizes, {1}));
  op.set(0, y);
}

// Arguments: gradient, input, weight, bias_sizes, then as convolution's, then which of the three are wanted.
void convolution_backward(Lowering& op) {
  Text& t = op.text();
  const Operand g = op.in(0);
  const Operand x = op.in(1);
  const Operand kernel = op.in(2);
  const Shape c = shape_of(op, 4, x.rank() - 2);
  if (op.wants(0)) {
    op.set(0, c.transposed ? forward(t, g, kernel, c, x.sizes) : input_gradient(t, g, kernel, c, x.sizes));
  }
  if (op.wants(1)) {
    const auto [image, result] = of_small_images(op, c.transposed ? g : x, c.transposed ? x : g);
    op.set(1, kernel_gradient(t, image, result, c, kernel.sizes));
  }
  if (op.wants(2)) op.set(2, sum_but_channels(t, t.convert(g, op.element(2))));
}

constexpr OperationInfo kConvolutions[] = {
    {"convolution", convolution},
    {"convolution_backward", convolution_backward},
};

}  // namespace

std::span<const OperationInfo> convolution_operations() {
  return kConvolutions;
}

}  // namespace cohort::record::stablehlo
