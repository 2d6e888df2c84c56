// Convolutions are linear: the own rows, with zeros around them, give their share of all outputs, and those outputs at
// the borders that see a neighbour's rows get the share of these added, from a strip that is zero but for them. So a
// part is never copied to put its halo around it, and there is something to compute while rows travel. Backward is the
// same: first the gradients of the strips, which are sent, then that of the own rows, then what came is added.
#include "wings/mesh/strategy/space/own_convolution.h"

#include <ATen/Functions.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "base/first_derivative.h"
#include "wings/mesh/strategy/space/halo.h"

namespace cohort::space {

namespace {

// Outputs that see rows of neighbours. Rows are counted in the whole, outputs in the part.
struct HaloStrip {
  Range rows;  // that the outputs see
  Range halo;  // those of them that neighbours have
  Range outputs;
};

class HeldConvolution final : public torch::CustomClassHolder {
 public:
  OwnConvolution convolution;  // without tensors
  c10::intrusive_ptr<RowExchange> exchange;
  std::vector<HaloStrip> strips;
  bool has_bias = false;

  std::vector<int64_t> padding_of_strips() const {
    std::vector<int64_t> padding = convolution.padding;
    padding[static_cast<std::size_t>(convolution.dim) - 2] = 0;
    return padding;
  }
  std::vector<int64_t> none() const { return std::vector<int64_t>(convolution.stride.size(), 0); }
};

torch::Tensor convolve(const HeldConvolution& box, const torch::Tensor& x, const torch::Tensor& weight,
                       const torch::Tensor& bias, const std::vector<int64_t>& padding) {
  const OwnConvolution& c = box.convolution;
  return at::convolution(x, weight, bias, c.stride, padding, c.dilation, /*transposed=*/false, box.none(), c.groups);
}

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> gradients_of(
    const HeldConvolution& box, const torch::Tensor& gradient, const torch::Tensor& x, const torch::Tensor& weight,
    bool has_bias, const std::vector<int64_t>& padding, std::array<bool, 3> wanted) {
  const OwnConvolution& c = box.convolution;
  const std::vector<int64_t> bias_sizes = {weight.size(0)};
  return at::convolution_backward(gradient, x, weight,
                                  has_bias ? c10::OptionalArrayRef<int64_t>(bias_sizes) : c10::nullopt, c.stride,
                                  padding, c.dilation, /*transposed=*/false, box.none(), c.groups, wanted);
}

// Returns a strip with its halo in its place.
torch::Tensor filled(const HeldConvolution& box, const HaloStrip& strip, const torch::Tensor& part) {
  const int64_t dim = box.convolution.dim;
  std::vector<int64_t> sizes = part.sizes().vec();
  sizes[static_cast<std::size_t>(dim)] = strip.rows.size();
  torch::Tensor rows = at::zeros(sizes, part.options().requires_grad(false));
  rows.narrow(dim, strip.halo.begin - strip.rows.begin, strip.halo.size())
      .copy_(box.exchange->receive(part, strip.halo));
  return rows;
}

class Convolve : public torch::autograd::Function<Convolve> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& part,
                               const torch::Tensor& weight, const torch::Tensor& bias,
                               const c10::intrusive_ptr<HeldConvolution>& box) {
    const int64_t dim = box->convolution.dim;
    box->exchange->send(part);
    torch::Tensor y = convolve(*box, part, weight, box->has_bias ? bias : torch::Tensor(), box->convolution.padding);
    std::vector<torch::Tensor> saved = {part, weight};
    for (const HaloStrip& strip : box->strips) {
      saved.push_back(filled(*box, strip, part));
      y.narrow(dim, strip.outputs.begin, strip.outputs.size())
          .add_(convolve(*box, saved.back(), weight, {}, box->padding_of_strips()));
    }
    context->saved_data["box"] = c10::IValue::make_capsule(box);
    context->saved_data["image"] = part.requires_grad();
    context->save_for_backward(saved);
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    require_first_derivative("[space] ", "a convolution of parts");
    const auto holder = context->saved_data["box"].toCapsule();
    const auto& box = static_cast<const HeldConvolution&>(*holder);
    const bool image = context->saved_data["image"].toBool();
    const auto saved = context->get_saved_variables();
    const torch::Tensor &part = saved[0], &weight = saved[1];
    const int64_t dim = box.convolution.dim;
    std::vector<torch::Tensor> of_weight;
    for (std::size_t i = 0; i < box.strips.size(); ++i) {
      const HaloStrip& strip = box.strips[i];
      const auto [of_rows, of_own, none] =
          gradients_of(box, gradients[0].narrow(dim, strip.outputs.begin, strip.outputs.size()).contiguous(),
                       saved[i + 2], weight, false, box.padding_of_strips(), {image, true, false});
      if (image) box.exchange->send_back(of_rows, strip.rows.begin, strip.halo);
      of_weight.push_back(of_own);
    }
    auto [of_part, sum, of_bias] = gradients_of(box, gradients[0], part, weight, box.has_bias, box.convolution.padding,
                                                {image, true, box.has_bias});
    for (const torch::Tensor& each : of_weight) sum.add_(each);
    if (image) box.exchange->add_returned(of_part);
    return {of_part, sum, of_bias, {}};
  }
};

// The strips before and behind the own rows, whose halos are those that are needed and received.
std::vector<HaloStrip> strips_of(const Window& window, const Range& seen, const RowExchange& exchange,
                                 int64_t outputs) {
  std::vector<HaloStrip> strips;
  const Range before = common(exchange.need(), {exchange.need().begin, exchange.own().begin});
  const Range behind = common(exchange.need(), {exchange.own().end, exchange.need().end});
  if (!before.empty()) {
    const int64_t count = std::min(outputs, (exchange.own().begin - seen.begin + window.stride - 1) / window.stride);
    const int64_t end = seen.begin + (count - 1) * window.stride + window.reach();
    strips.push_back({{seen.begin, end}, before, {0, count}});
  }
  if (!behind.empty()) {
    const int64_t room = exchange.own().end - seen.begin - window.reach();
    const int64_t first = room < 0 ? 0 : room / window.stride + 1;
    strips.push_back({{seen.begin + first * window.stride, seen.end}, behind, {first, outputs}});
  }
  return strips;
}

}  // namespace

std::optional<torch::Tensor> convolve_own(const OwnConvolution& convolution, const Layout& layout) {
  const Window& window = convolution.window;
  const int64_t dim = convolution.dim;
  const torch::Tensor& part = convolution.part;
  const bool casts = !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutocastCPU);
  if (!part.device().is_cpu() || casts || part.numel() == 0 || window.stride > window.reach()) return std::nullopt;
  const auto axis = static_cast<std::size_t>(layout.axes[static_cast<std::size_t>(dim)]);
  const int64_t size = layout.sizes[static_cast<std::size_t>(dim)];
  const int64_t parts = layout.grid.parts[axis];
  const Range own_outputs = part_of(convolution.outputs, parts, layout.grid.position(axis));
  if (own_outputs.empty()) return std::nullopt;
  const Range seen = window.inputs(own_outputs);
  const int64_t padding = layout.own(dim).begin - seen.begin;
  const Window alone{window.kernel, window.stride, window.dilation, padding, padding};
  if (padding < 0 || alone.outputs(part.size(dim)) != own_outputs.size()) return std::nullopt;

  const auto box = c10::make_intrusive<HeldConvolution>();
  box->exchange = c10::make_intrusive<RowExchange>(
      layout, dim, needs_of(size, convolution.outputs, parts, [&](const Range& out) { return window.inputs(out); }));
  box->convolution = convolution;
  box->convolution.part = box->convolution.weight = box->convolution.bias = torch::Tensor();
  box->convolution.padding[static_cast<std::size_t>(dim) - 2] = padding;
  box->strips = strips_of(window, seen, *box->exchange, own_outputs.size());
  box->has_bias = convolution.bias.defined();
  // Functions take no undefined tensors.
  return Convolve::apply(part, convolution.weight, box->has_bias ? convolution.bias : part.new_empty({0}), box);
}

}  // namespace cohort::space
