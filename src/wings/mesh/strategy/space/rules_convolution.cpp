// Convolutions and transposed convolutions: each part computes its own outputs. Weights are whole on every replica.
#include <ATen/Functions.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <optional>

#include "wings/mesh/strategy/space/halo.h"
#include "wings/mesh/strategy/space/own_convolution.h"
#include "wings/mesh/strategy/space/rules.h"
#include "wings/mesh/strategy/space/windows.h"

namespace cohort::space {

namespace {

// The arguments of a convolution, whatever its overload calls them.
struct ConvolutionArguments {
  torch::Tensor x, weight, bias;
  std::vector<int64_t> stride, padding, dilation, output_padding;
  int64_t groups = 1;
  bool transposed = false;

  int64_t rank() const { return x.dim() - 2; }
  int64_t kernel(int64_t i) const { return weight.size(i + 2); }
  Window window(int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    return {kernel(i), stride[at], dilation[at], padding[at], padding[at]};
  }
};

// The shape of one value a channel beside a tensor of this rank.
std::vector<int64_t> spread_channels(int64_t rank) {
  std::vector<int64_t> shape(static_cast<std::size_t>(rank), 1);
  shape[1] = -1;
  return shape;
}

// "same" pads by the rest that a window leaves, the larger half at the end; it wants strides of 1.
std::vector<Window> windows_of(DividedCall& call, const ConvolutionArguments& c) {
  std::vector<Window> windows;
  const auto padding = call.find("padding");
  const bool by_name = padding && call[*padding].isString();
  for (int64_t i = 0; i < c.rank(); ++i) {
    Window window = c.window(i);
    if (by_name && call[*padding].toStringRef() == "same") {
      window.before = (window.reach() - 1) / 2;
      window.after = window.reach() - 1 - window.before;
    }
    windows.push_back(window);
  }
  return windows;
}

ConvolutionArguments arguments_of(DividedCall& call) {
  ConvolutionArguments c{.x = call.tensor(0), .weight = call.tensor(1), .bias = call.tensor(2)};
  if (!is_divided(c.x) || is_divided(c.weight) || (c.bias.defined() && is_divided(c.bias))) {
    call.refuse("its weights are to be whole, its input in parts");
  }
  for (const int64_t dim : layout_of(c.x).cut_dims()) {
    if (dim < 2) call.refuse(c10::str("dimension ", dim, " is no dimension of the image; height and width can be cut"));
  }
  const auto list = [&](const char* name, int64_t otherwise) {
    const auto at = call.find(name);
    if (!at || !call[*at].isIntList()) return spread({otherwise}, c.rank());
    return spread(call[*at].toIntVector(), c.rank());
  };
  c.stride = list("stride", 1);
  c.padding = list("padding", 0);
  c.dilation = list("dilation", 1);
  c.output_padding = list("output_padding", 0);
  c.groups = call[call.find("groups").value()].toInt();
  const auto transposed = call.find("transposed");
  c.transposed = transposed ? call[*transposed].toBool() : call.short_name().find("transpose") != std::string::npos;
  return c;
}

// The part's own rows of the first dimension that is cut are not joined with those of the neighbours, where that goes.
std::optional<torch::Tensor> convolve_in_place(const ConvolutionArguments& c, const Windowed& input,
                                               const torch::Tensor& weight, const torch::Tensor& bias, int64_t dim,
                                               const Window& window) {
  for (std::size_t i = 0; i < input.windows.size(); ++i) {
    const bool same = input.windows[i].before == input.windows[i].after;
    if (!same && static_cast<int64_t>(i) + 2 != dim) return std::nullopt;
  }
  OwnConvolution own{.part = input.part,
                     .weight = weight,
                     .bias = bias,
                     .stride = c.stride,
                     .padding = {},
                     .dilation = c.dilation,
                     .groups = c.groups,
                     .dim = dim,
                     .window = window,
                     .outputs = input.outputs.sizes[static_cast<std::size_t>(dim)]};
  for (const Window& each : input.windows) own.padding.push_back(each.before);
  return convolve_own(own, layout_of(c.x));
}

void convolve(DividedCall& call, const ConvolutionArguments& c) {
  const std::vector<Window> windows = windows_of(call, c);
  const int64_t first = layout_of(c.x).cut_dims().front();
  Windowed input = fetch_windows(call, c.x, windows, first);
  Layout layout = input.outputs;
  layout.sizes[1] = c.weight.size(0);
  const torch::Tensor weight = shared(c.weight, layout);
  const torch::Tensor bias = shared(c.bias, layout);
  const Window& window = windows[static_cast<std::size_t>(first) - 2];
  if (const auto y = convolve_in_place(c, input, weight, bias, first, window)) {
    return call.finish({make_divided(*y, layout)});
  }
  input.fetch_rows(layout_of(c.x), first, window);
  if (input.empty()) {  // or outputs that see padding alone
    torch::Tensor y = empty_part(layout.local_sizes(), {input.part, weight, bias});
    if (bias.defined()) y = y + bias.view(spread_channels(y.dim()));
    return call.finish({make_divided(y, layout)});
  }
  const auto [part, padding] = input.padded(0.0);
  const torch::Tensor y = at::convolution(part, weight, bias, c.stride, padding, c.dilation, /*transposed=*/false,
                                          std::vector<int64_t>(static_cast<std::size_t>(c.rank()), 0), c.groups);
  call.finish({make_divided(input.cropped(y), layout)});
}

// The outputs of the rows that come are computed without padding, cut or filled up with zeros to this part's, and only
// then get the bias.
void convolve_transposed(DividedCall& call, const ConvolutionArguments& c) {
  Layout layout = layout_of(c.x);
  torch::Tensor part = part_of(c.x);
  layout.sizes[1] = c.weight.size(1) * c.groups;
  std::vector<int64_t> border;
  for (int64_t i = 0; i < c.rank(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const int64_t dim = i + 2;
    const Window window = c.window(i);
    const int64_t size = c.x.size(dim);
    const int64_t outputs = (size - 1) * window.stride - 2 * window.before + window.reach() + c.output_padding[at];
    if (outputs < 1) call.refuse(c10::str("it has ", outputs, " outputs along dimension ", dim));
    layout.sizes[static_cast<std::size_t>(dim)] = outputs;
    Range have{0, size};
    if (layout.is_cut(dim)) {
      const auto axis = static_cast<std::size_t>(layout.axes[static_cast<std::size_t>(dim)]);
      const auto need_of = [&](const Range& out) { return transposed_inputs(window, out, size); };
      const std::vector<Range> needs = needs_of(size, outputs, layout.grid.parts[axis], need_of);
      have = needs[static_cast<std::size_t>(layout.grid.position(axis))];
      part = fetch(part, layout_of(c.x), dim, needs);
    }
    const Range made{have.begin * window.stride - window.before,
                     (have.end - 1) * window.stride - window.before + window.reach()};
    const Range own = layout.own(dim);
    border.insert(border.begin(), {made.begin - own.begin, own.end - made.end});
  }
  const torch::Tensor weight = shared(c.weight, layout);
  const torch::Tensor bias = shared(c.bias, layout);
  const std::vector<int64_t> sizes = layout.local_sizes();
  if (part.numel() == 0 || c10::multiply_integers(sizes) == 0) {
    torch::Tensor y = empty_part(sizes, {part, weight, bias});
    if (bias.defined()) y = y + bias.view(spread_channels(y.dim()));
    return call.finish({make_divided(y, layout)});
  }
  const bool exact = std::all_of(border.begin(), border.end(), [](int64_t each) { return each == 0; });
  const std::vector<int64_t> none(static_cast<std::size_t>(c.rank()), 0);
  torch::Tensor y = at::convolution(part, weight, exact ? bias : torch::Tensor(), c.stride, none, c.dilation,
                                    /*transposed=*/true, none, c.groups);
  if (!exact) {
    y = at::constant_pad_nd(y, border);
    if (bias.defined()) y = y + bias.view(spread_channels(y.dim()));
  }
  call.finish({make_divided(y, layout)});
}

void call_convolution(DividedCall& call) {
  const ConvolutionArguments c = arguments_of(call);
  c.transposed ? convolve_transposed(call, c) : convolve(call, c);
}

}  // namespace

void add_convolution_rules(Rules& rules) {
  for (const char* name : {"conv1d", "conv2d", "convolution", "conv_transpose1d", "conv_transpose2d"}) {
    rules[name] = call_convolution;
  }
}

}  // namespace cohort::space
