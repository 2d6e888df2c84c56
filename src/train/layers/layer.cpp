#include <ATen/Functions.h>

#include "train/layers/constraints.h"
#include "train/layers/support.h"

namespace cohort {

std::string to_text(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += shape[i] < 0 ? "?" : std::to_string(shape[i]);
  }
  return text + "]";
}

void fail_input(const std::string& layer, std::string_view type, const std::string& came, const std::string& wanted) {
  fail<InvalidArgument>("[layers] ", layer, " (", type, "): the input is ", came, ", wanted ", wanted);
}

void fail_called(const std::string& layer, std::string_view type, const torch::Tensor& x, const std::string& wanted) {
  fail_input(layer, type, x.defined() ? c10::str(x.scalar_type(), x.sizes()) : std::string("undefined"), wanted);
}

void check_input(const std::string& layer, std::string_view type, const torch::Tensor& x, int64_t rank, int64_t dim,
                 int64_t size) {
  const bool fits = (rank == 0 ? x.dim() >= 2 : x.dim() == rank) && x.size(dim) == size;
  if (fits && x.is_floating_point()) return;
  if (fits) {
    fail_called(layer, type, x, "floating point: convert in map(), or begin with a Rescaling layer");
  }
  std::string shape = "[batch, ..., " + std::to_string(size) + "]";
  if (rank == 4) shape = "[batch, " + std::to_string(size) + ", height, width]";
  if (dim == 1 && rank != 4) shape = "[batch, " + std::to_string(size) + ", ...]";
  fail_called(layer, type, x, shape);
}

torch::Tensor penalty_of(std::initializer_list<Regularized> parameters) {
  torch::Tensor sum;
  for (const auto& [regularizer, parameter] : parameters) {
    if (!regularizer || !parameter.defined() || !parameter.requires_grad()) continue;
    const torch::Tensor cost = regularizer(regularizer.takes_keras_layout() ? keras_kernel(parameter) : parameter);
    sum = sum.defined() ? sum + cost : cost;
  }
  return sum;
}

Layer::Layer(std::shared_ptr<const LayerKind> kind, std::string name, bool trainable)
    : kind_(std::move(kind)), name_(std::move(name)), trainable_(trainable) {
  if (!kind_) fail<InvalidArgument>("[layers] a layer needs a kind, got none");
  if (name_.find_first_of("./ ") != std::string::npos) {
    fail<InvalidArgument>("[layers] the name \"", name_, "\": a layer's name has no dot, slash or space");
  }
}

void check_window(std::string_view type, torch::IntArrayRef kernel, torch::IntArrayRef strides,
                  torch::IntArrayRef dilation) {
  const auto check = [&](const char* name, torch::IntArrayRef sizes) {
    bool ones = true;
    std::string text;
    for (const int64_t size : sizes) {
      text += (text.empty() ? "" : " x ") + std::to_string(size);
      ones = ones && size == 1;
    }
    for (const int64_t size : sizes) {
      if (size <= 0) fail_option(type, name, " must be positive, got ", text);
    }
    return ones;
  };
  check("kernel_size", kernel);
  const bool dense = check("strides", strides);
  const bool near = check("dilation_rate", dilation);
  if (!dense && !near) fail_option(type, "strides and dilation_rate cannot both be above 1");
}

void check_padding(std::string_view type, Padding padding) {
  if (padding == Padding::kCausal) fail_option(type, "padding kCausal is Conv1D's; images have kValid and kSame");
}

torch::Tensor empty_from(const std::vector<torch::Tensor>& sources, torch::IntArrayRef shape) {
  torch::Tensor y;
  for (const torch::Tensor& source : sources) {
    if (!source.defined()) continue;
    if (!y.defined()) y = at::zeros(shape, source.options().requires_grad(false));
    y = y + source.sum();
  }
  return y;
}

Window2 make_window(Size2 size, Size2 stride, Size2 dilation, Padding padding) {
  const Pads pads = pads_of(padding);
  return {.height = {.size = size.height, .stride = stride.height, .dilation = dilation.height, .padding = pads},
          .width = {.size = size.width, .stride = stride.width, .dilation = dilation.width, .padding = pads}};
}

Shape image_shape(const BuildContext& context, std::string_view type, bool may_add_channel) {
  if (context.input.size() == 3) return context.input;
  if (context.input.size() == 2 && may_add_channel) return {1, context.input[0], context.input[1]};
  fail_input(context.name, type, to_text(context.input) + " an example",
             std::string("[channels, height, width]") + (may_add_channel ? " or [height, width]" : ""));
}

Shape window_output(const BuildContext& context, std::string_view type, const Shape& image, int64_t channels,
                    const Window2& window) {
  Shape output = {channels, window.height.output(image[1]), window.width.output(image[2])};
  if (output[1] == 0 || output[2] == 0) {
    fail_input(context.name, type, to_text(context.input) + " an example",
               c10::str("images of at least ", window.height.reach(), " x ", window.width.reach()));
  }
  return output;
}

}  // namespace cohort
