// Operations between elements in the same place: of each tensor the part that belongs to the result's.
#include <array>

#include "strategy/along_line.h"
#include "wings/mesh/strategy/space/rules.h"

namespace cohort::space {

namespace {

// Returns the layout of what tensors make together when they are broadcast. A dimension is cut if it is in any of them.
Layout broadcast(DividedCall& call, const std::vector<torch::Tensor>& tensors) {
  Layout layout;
  for (const torch::Tensor& each : tensors) {
    while (layout.dim() < each.dim()) {
      layout.sizes.insert(layout.sizes.begin(), 1);
      layout.axes.insert(layout.axes.begin(), kWhole);
    }
  }
  for (const torch::Tensor& each : tensors) {
    const Layout* own = is_divided(each) ? &layout_of(each) : nullptr;
    if (own != nullptr) layout.grid = own->grid;
    const int64_t offset = layout.dim() - each.dim();
    for (int64_t dim = 0; dim < each.dim(); ++dim) {
      const auto at = static_cast<std::size_t>(dim + offset);
      if (layout.sizes[at] == 1) layout.sizes[at] = each.size(dim);
      if (layout.sizes[at] != each.size(dim) && each.size(dim) != 1) {
        call.refuse(
            c10::str("its operands have ", layout.sizes[at], " and ", each.size(dim), " elements in a dimension"));
      }
    }
  }
  for (const torch::Tensor& each : tensors) {
    if (!is_divided(each)) continue;
    const int64_t offset = layout.dim() - each.dim();
    for (const int64_t dim : layout_of(each).cut_dims()) {
      layout.axes[static_cast<std::size_t>(dim + offset)] = layout_of(each).axes[static_cast<std::size_t>(dim)];
    }
  }
  return layout;
}

// Losses: a value an element, or their sum or mean, as the argument "reduction" says.
void call_loss(DividedCall& call) {
  constexpr int64_t kNone = 0;
  constexpr int64_t kMean = 1;
  const std::size_t at = call.find("reduction").value();
  const int64_t reduction = call[at].toInt();
  call[at] = kNone;
  call_pointwise(call);
  if (reduction == kNone) return;
  const torch::Tensor each = call.tensor(0);
  call.finish({reduction == kMean ? each.mean() : each.sum()});
}

// Negative log likelihoods: the classes are dimension 1 of the input, which the target does not have.
void call_nll(DividedCall& call) {
  const torch::Tensor input = call.tensor(0);
  const bool plain = !is_divided(call.tensor(1)) && !is_divided(call.tensor(2));
  if (plain && input.dim() > 1 && has_classes_in_parts(layout_of(input), 1)) return call_nll_of_classes(call);
  if (!is_divided(input) || layout_of(input).is_cut(1)) call.refuse("its classes, dimension 1, have to be whole");
  Layout layout = layout_of(input);
  layout.sizes.erase(layout.sizes.begin() + 1);
  layout.axes.erase(layout.axes.begin() + 1);
  const int64_t reduction = call[3].toInt();
  const torch::Tensor target = matching_part(call, call.tensor(1), layout);
  const torch::Tensor weight = call.tensor(2);
  const int64_t ignored = call[4].toInt();
  call[0] = part_of(input);
  call[1] = target;
  call[2] = shared(weight, layout);
  call[3] = int64_t{0};
  call.forward();
  const torch::Tensor each = call.tensor(0);
  if (reduction == 0) return call.finish({make_divided(each, layout)});
  torch::Tensor sum = sum_over_line(each.sum(), *layout.grid.line);
  if (reduction == 1) {
    const torch::Tensor counts = target.ne(ignored);
    const torch::Tensor weights =
        weight.defined() ? weight.detach().take(target.clamp_min(0).where(counts, at::zeros_like(target))) * counts
                         : counts.to(each.scalar_type());
    sum = sum / sum_over_line(weights.sum(), *layout.grid.line);
  }
  call.finish({sum});
}

}  // namespace

void call_pointwise(DividedCall& call) {
  const bool in_place = call.in_place();
  const torch::Tensor first = call.tensor(0);
  std::vector<torch::Tensor> tensors;
  for (std::size_t i = 0; i < call.size(); ++i) {
    if (call.tensor(i).defined()) tensors.push_back(call.tensor(i));
  }
  const Layout layout = broadcast(call, tensors);
  if (in_place && (!is_divided(first) || layout_of(first).sizes != layout.sizes)) {
    call.refuse("a tensor that is whole, or smaller, would be changed in place");
  }
  for (std::size_t i = 0; i < call.size(); ++i) {
    if (call.tensor(i).defined()) call[i] = matching_part(call, call.tensor(i), layout);
  }
  call.forward();
  if (!in_place) return call.divide_results(layout);
  refresh(first);
  call.finish({first});
}

void add_pointwise_rules(Rules& rules) {
  constexpr std::array kNames = {
      "abs",         "add",        "addcdiv",     "addcmul",    "alias",       "atan",        "bitwise_and",
      "bitwise_not", "bitwise_or", "ceil",        "celu",       "clamp",       "clamp_max",   "clamp_min",
      "clone",       "contiguous", "copysign",    "cos",        "detach",      "div",         "elu",
      "eq",          "erf",        "exp",         "expm1",      "fill",        "floor",       "floor_divide",
      "frac",        "ge",         "gelu",        "gt",         "hardshrink",  "hardsigmoid", "hardswish",
      "hardtanh",    "isfinite",   "isinf",       "isnan",      "le",          "leaky_relu",  "lerp",
      "log",         "log10",      "log1p",       "log2",       "log_sigmoid", "logaddexp",   "logical_and",
      "logical_not", "logical_or", "logical_xor", "logit",      "lt",          "masked_fill", "maximum",
      "minimum",     "mish",       "mul",         "nan_to_num", "ne",          "neg",         "pow",
      "reciprocal",  "relu",       "relu6",       "remainder",  "round",       "rsqrt",       "selu",
      "sigmoid",     "sign",       "silu",        "sin",        "softplus",    "softshrink",  "softsign",
      "sqrt",        "square",     "sub",         "rsub",       "tan",         "tanh",        "threshold",
      "true_divide", "trunc",      "where",       "xlogy",      "zero",        "zeros_like",  "ones_like",
      "empty_like",  "full_like",  "_to_copy",    "multiply",   "subtract",    "divide",      "negative"};
  for (const char* name : kNames) {
    rules[name] = call_pointwise;
    rules[c10::str(name, "_")] = call_pointwise;
  }
  for (const char* name : {"to.dtype", "to.device", "to.dtype_layout"}) {
    rules[c10::str("aten::", name)] = call_pointwise;
  }
  for (const char* name : {"binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss", "l1_loss",
                           "smooth_l1_loss", "huber_loss", "soft_margin_loss"}) {
    rules[name] = call_loss;
  }
  for (const char* name : {"nll_loss", "nll_loss2d"}) rules[name] = call_nll;
}

}  // namespace cohort::space
