// Convolutions, pooling, and images of other sizes.
#include <cmath>

#include "wings/export/train/onnx/rules.h"

namespace cohort::exports {

namespace {

// Returns one number for each dimension of the images.
Sizes spread(const TracedOperation& op, std::size_t i, std::size_t dims) {
  Sizes sizes = op.integers(i);
  if (sizes.size() == 1) sizes.resize(dims, sizes.front());
  return sizes;
}

Sizes both_sides(const Sizes& padding) {
  Sizes pads = padding;
  pads.insert(pads.end(), padding.begin(), padding.end());
  return pads;
}

// x, weight, bias and where the numbers stand.
struct ConvolutionPlaces {
  std::size_t stride, padding, dilation, groups;
};

void convolve(const TracedOperation& op, const ConvolutionPlaces& places, const Attributes& more,
              const char* operation) {
  const auto dims = static_cast<std::size_t>(op.rank(1) - 2);
  if (op.rank(0) != op.rank(1)) op.refuse("without a dimension of the batch has no form in ONNX here");
  Attributes attributes = {{"strides", spread(op, places.stride, dims)},
                           {"dilations", spread(op, places.dilation, dims)},
                           {"group", op.integer(places.groups)}};
  const auto padding = op.to.known(op.in(places.padding));
  if (padding && padding->isString()) {
    if (padding->toStringRef() != "valid") op.refuse("with padding \"same\" has no form in ONNX here");
  } else {
    attributes.emplace_back("pads", both_sides(spread(op, places.padding, dims)));
  }
  attributes.insert(attributes.end(), more.begin(), more.end());
  Names inputs = {op.x(0), op.x(1)};
  if (op.has(2)) inputs.push_back(op.x(2));
  op.give(op.add(operation, inputs, attributes));
}

// _convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, ...)
void convolution(const TracedOperation& op) {
  const ConvolutionPlaces places = {.stride = 3, .padding = 4, .dilation = 5, .groups = 8};
  if (!op.flag(6)) return convolve(op, places, {}, "Conv");
  const auto dims = static_cast<std::size_t>(op.rank(1) - 2);
  convolve(op, places, {{"output_padding", spread(op, 7, dims)}}, "ConvTranspose");
}

// conv2d(x, weight, bias, stride, padding, dilation, groups)
void plain_convolution(const TracedOperation& op) {
  convolve(op, {.stride = 3, .padding = 4, .dilation = 5, .groups = 6}, {}, "Conv");
}

// conv_transpose2d(x, weight, bias, stride, padding, output_padding, groups, dilation)
void transposed_convolution(const TracedOperation& op) {
  const auto dims = static_cast<std::size_t>(op.rank(1) - 2);
  convolve(op, {.stride = 3, .padding = 4, .dilation = 7, .groups = 6}, {{"output_padding", spread(op, 5, dims)}},
           "ConvTranspose");
}

// The windows of a pooling: its size, its steps (as large, if there are none) and its padding.
Attributes windows(const TracedOperation& op, std::size_t dims) {
  const Sizes size = spread(op, 1, dims);
  Sizes steps = spread(op, 2, dims);
  if (steps.empty()) steps = size;
  return {{"kernel_shape", size}, {"strides", steps}, {"pads", both_sides(spread(op, 3, dims))}};
}

std::size_t image_dims(const TracedOperation& op) {
  const std::string name = op.node.kind().toUnqualString();
  const std::size_t place = name.find_last_of('d');
  const auto dims = static_cast<std::size_t>(name[place - 1] - '0');
  if (op.rank(0) != static_cast<int64_t>(dims) + 2)
    op.refuse("without a dimension of the batch has no form in ONNX here");
  return dims;
}

// max_pool2d(x, kernel, stride, padding, dilation, ceil_mode)
void max_pool(const TracedOperation& op) {
  const std::size_t dims = image_dims(op);
  Attributes attributes = windows(op, dims);
  attributes.emplace_back("dilations", spread(op, 4, dims));
  attributes.emplace_back("ceil_mode", static_cast<int64_t>(op.flag(5)));
  op.give(op.add("MaxPool", {op.x(0)}, attributes));
}

// avg_pool2d(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
void avg_pool(const TracedOperation& op) {
  const std::size_t dims = image_dims(op);
  Attributes attributes = windows(op, dims);
  attributes.emplace_back("ceil_mode", static_cast<int64_t>(op.flag(4)));
  attributes.emplace_back("count_include_pad", static_cast<int64_t>(op.has(6) || op.flag(5)));
  const Name mean = op.add("AveragePool", {op.x(0)}, attributes);
  if (!op.has(6)) return op.give(mean);
  if (op.flag(4)) op.refuse("with a divisor and a part of a window has no form in ONNX here");
  double elements = 1.0;
  for (const int64_t size : spread(op, 1, dims)) elements *= static_cast<double>(size);
  op.give(op.add("Mul", {mean, op.scalar(elements / op.number(6), op.out_dtype())}));
}

// The windows are equal where the sizes divide.
void adaptive_pool(const TracedOperation& op, const char* of_all, const char* of_windows) {
  const std::size_t dims = image_dims(op);
  const Sizes from = op.sizes(0), to = op.out_sizes();
  Sizes windows;
  bool all = true;
  for (std::size_t i = 2; i < 2 + dims; ++i) {
    if (op.known_size(0, static_cast<int64_t>(i)) % to[i] != 0)
      op.refuse(c10::str("from ", from[i], " to ", to[i], " elements has no form in ONNX here"));
    windows.push_back(from[i] / to[i]);
    all = all && to[i] == 1;
  }
  op.give(all ? op.add(of_all, {op.x(0)})
              : op.add(of_windows, {op.x(0)}, {{"kernel_shape", windows}, {"strides", windows}}));
}

void adaptive_avg_pool(const TracedOperation& op) {
  adaptive_pool(op, "GlobalAveragePool", "AveragePool");
}

void adaptive_max_pool(const TracedOperation& op) {
  if (!op.node.output(1)->uses().empty()) op.refuse("with indices has no form in ONNX here");
  adaptive_pool(op, "GlobalMaxPool", "MaxPool");
}

// The sizes of images are known; those of the batch and of the channels stay.
void resize(const TracedOperation& op, const Attributes& how) {
  const Sizes to = op.out_sizes();
  for (std::size_t dim = 2; dim < to.size(); ++dim) op.known_size(0, static_cast<int64_t>(dim));
  const Name shape = op.add("Shape", {op.x(0)}, {{"end", int64_t{2}}});
  const Name sizes = op.add("Concat", {shape, op.to.integers({to.begin() + 2, to.end()})}, {{"axis", int64_t{0}}});
  op.give(op.add("Resize", {op.x(0), "", "", sizes}, how));
}

// A scale that is no quotient of the sizes moves the places where values are taken.
void require_exact_scale(const TracedOperation& op, std::size_t i) {
  if (!op.has(i)) return;
  const Sizes from = op.sizes(0), to = op.out_sizes();
  std::vector<double> scales;
  if (const auto value = op.to.known(op.in(i)); value && value->isDouble()) {
    scales.push_back(value->toDouble());
  } else if (value && value->isDoubleList()) {
    for (const double each : value->toDoubleVector()) scales.push_back(each);
  } else {
    for (const torch::jit::Value* const each : op.to.list(op.in(i))) {
      scales.push_back(op.to.known(each).value_or(c10::IValue(0.0)).toDouble());
    }
  }
  for (std::size_t k = 0; k < scales.size(); ++k) {
    const std::size_t dim = from.size() - scales.size() + k;
    if (std::abs(scales[k] * static_cast<double>(from[dim]) - static_cast<double>(to[dim])) > 1e-6) {
      op.refuse("by a scale that does not give a whole number of elements has no form in ONNX here");
    }
  }
}

void upsample_nearest(const TracedOperation& op) {
  for (std::size_t i = 2; i < op.node.inputs().size(); ++i) require_exact_scale(op, i);
  resize(op, {{"mode", std::string("nearest")},
              {"coordinate_transformation_mode", std::string("asymmetric")},
              {"nearest_mode", std::string("floor")}});
}

// upsample_bilinear2d(x, size, align_corners, scales...)
void upsample_linear(const TracedOperation& op) {
  for (std::size_t i = 3; i < op.node.inputs().size(); ++i) require_exact_scale(op, i);
  resize(op, {{"mode", std::string("linear")},
              {"coordinate_transformation_mode", std::string(op.flag(2) ? "align_corners" : "half_pixel")}});
}

}  // namespace

void add_convolution_rules(Rules& rules) {
  rules.insert({{"aten::_convolution", convolution},
                {"aten::convolution", convolution},
                {"aten::upsample_linear1d", upsample_linear},
                {"aten::upsample_bilinear2d", upsample_linear},
                {"aten::upsample_trilinear3d", upsample_linear}});
  for (const char* const dims : {"1d", "2d", "3d"}) {
    const auto name = [&](const char* operation) { return std::string("aten::") + operation + dims; };
    rules[name("conv")] = plain_convolution;
    rules[name("conv_transpose")] = transposed_convolution;
    rules[name("max_pool")] = max_pool;
    rules[name("avg_pool")] = avg_pool;
    rules[name("adaptive_avg_pool")] = adaptive_avg_pool;
    rules[name("adaptive_max_pool")] = adaptive_max_pool;
    rules[name("upsample_nearest")] = upsample_nearest;
  }
}

}  // namespace cohort::exports
