#include "cohort/train/layers/merging.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "cohort/train/layers/graph_layer.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

std::string texts_of(const std::vector<Shape>& shapes) {
  std::string text;
  for (const Shape& shape : shapes) text += (text.empty() ? "" : ", ") + to_text(shape);
  return text;
}

[[noreturn]] void fail_shapes(const BuildContext& context, std::string_view type, const std::vector<Shape>& inputs,
                              const std::string& wanted) {
  fail<InvalidArgument>("[layers] ", context.name, " (", type, "): the inputs are ", texts_of(inputs),
                        " an example, wanted ", wanted);
}

bool any_defined(const std::vector<torch::Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const torch::Tensor& each) { return each.defined(); });
}

using Tensors = std::vector<torch::Tensor>;

// Elementwise merges.
struct Merge {
  std::string_view type;
  std::string_view base_name;
  std::size_t most;  // inputs; 0: any number
  // Merges inputs of one rank. A mask has dimensions of size 1 for what it does not have; undefined: there is none.
  torch::Tensor (*of)(const Tensors& inputs, const Tensors& masks);
};

torch::Tensor sum_of(const Tensors& inputs, const Tensors& /*masks*/) {
  torch::Tensor y = inputs.front();
  for (std::size_t i = 1; i < inputs.size(); ++i) y = y + inputs[i];
  return y;
}

torch::Tensor difference_of(const Tensors& inputs, const Tensors& /*masks*/) {
  return inputs[0] - inputs[1];
}

torch::Tensor mean_of(const Tensors& inputs, const Tensors& masks) {
  return sum_of(inputs, masks) / static_cast<double>(inputs.size());
}

// What does not count is 1, and 0 where no input counts.
torch::Tensor product_of(const Tensors& inputs, const Tensors& masks) {
  torch::Tensor y, counts;
  bool all = true;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool masked = masks[i].defined();
    const torch::Tensor x = masked ? at::where(masks[i], inputs[i], at::ones_like(inputs[i])) : inputs[i];
    y = y.defined() ? y * x : x;
    all = all && masked;
    if (all) counts = counts.defined() ? counts.logical_or(masks[i]) : masks[i];
  }
  return all ? at::where(counts, y, at::zeros_like(y)) : y;
}

// What does not count in one input is the other one. LibTorch's maximum() halves the gradient of equal elements;
// TensorFlow's gives it to the first one.
torch::Tensor chosen_of(const Tensors& inputs, const Tensors& masks,
                        torch::Tensor (*keeps)(const torch::Tensor& a, const torch::Tensor& b)) {
  torch::Tensor y = inputs.front(), counts = masks.front();
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    torch::Tensor x = inputs[i];
    if (masks[i].defined()) x = at::where(masks[i], x, y);
    if (counts.defined()) y = at::where(counts, y, x);
    counts = masks[i].defined() && counts.defined() ? counts.logical_or(masks[i]) : torch::Tensor();
    y = at::where(keeps(y, x), y, x);
  }
  return y;
}

torch::Tensor largest_of(const Tensors& inputs, const Tensors& masks) {
  return chosen_of(inputs, masks, [](const torch::Tensor& a, const torch::Tensor& b) { return a >= b; });
}

torch::Tensor smallest_of(const Tensors& inputs, const Tensors& masks) {
  return chosen_of(inputs, masks, [](const torch::Tensor& a, const torch::Tensor& b) { return a <= b; });
}

constexpr Merge kAdd = {"Add", "add", 0, sum_of};
constexpr Merge kSubtract = {"Subtract", "subtract", 2, difference_of};
constexpr Merge kMultiply = {"Multiply", "multiply", 0, product_of};
constexpr Merge kAverage = {"Average", "average", 0, mean_of};
constexpr Merge kMaximum = {"Maximum", "maximum", 0, largest_of};
constexpr Merge kMinimum = {"Minimum", "minimum", 0, smallest_of};

// Returns x with so many dimensions: those of size 1 that are missing are at `place`.
torch::Tensor with_rank(torch::Tensor x, int64_t rank, int64_t place) {
  while (x.defined() && x.dim() < rank) x = x.unsqueeze(place);
  return x;
}

class MergeModule final : public GraphLayerModule {
 public:
  explicit MergeModule(const Merge& merge) : merge_(merge) {}

  LayerValues forward_values(const LayerValues& inputs) override {
    int64_t most = 0;
    for (const torch::Tensor& each : inputs.tensors) most = std::max(most, each.dim());
    Tensors tensors, masks;
    for (std::size_t i = 0; i < inputs.tensors.size(); ++i) {
      tensors.push_back(with_rank(inputs.tensors[i], most, 1));
      masks.push_back(with_rank(inputs.masks[i], most, -1));
    }
    return {.tensors = {merge_.of(tensors, masks)}, .masks = {mask_of_all(inputs.masks)}};
  }

 private:
  static torch::Tensor mask_of_all(const Tensors& masks) {
    torch::Tensor any;
    for (const torch::Tensor& mask : masks) {
      if (!mask.defined()) return {};
      any = any.defined() ? any.logical_or(mask) : mask;
    }
    return any;
  }

  const Merge& merge_;
};

class MergeKind final : public GraphLayerKind {
 public:
  explicit MergeKind(const Merge& merge) : merge_(merge) {}
  std::string_view type() const override { return merge_.type; }
  std::string_view base_name() const override { return merge_.base_name; }

  std::vector<Shape> output_shapes(const BuildContext& context, const std::vector<Shape>& inputs) const override {
    if (inputs.size() < 2 || (merge_.most > 0 && inputs.size() > merge_.most)) {
      fail_shapes(context, merge_.type, inputs, merge_.most == 2 ? "two of them" : "two or more");
    }
    std::size_t rank = 0;
    for (const Shape& each : inputs) rank = std::max(rank, each.size());
    Shape output(rank, 1);
    for (const Shape& each : inputs) {
      for (std::size_t d = 0; d < each.size(); ++d) {
        int64_t& size = output[rank - each.size() + d];
        if (size < 0 || each[d] < 0) {
          size = -1;
        } else if (size == 1) {
          size = each[d];
        } else if (each[d] != 1 && size != each[d]) {
          fail_shapes(context, merge_.type, inputs, "dimensions that are equal, or 1");
        }
      }
    }
    return {output};
  }

  std::shared_ptr<GraphLayerModule> build_for(const BuildContext& /*context*/,
                                              const std::vector<Shape>& /*inputs*/) const override {
    return std::make_shared<MergeModule>(merge_);
  }

 private:
  const Merge& merge_;
};

Layer merge_layer(const Merge& merge, const MergeOptions& options) {
  return Layer(made_with<MergeKind>(options, merge), options.name);
}

// `dim` counts the batch's, which is 0.
class ConcatenateModule final : public GraphLayerModule {
 public:
  explicit ConcatenateModule(int64_t dim) : dim_(dim) {}

  LayerValues forward_values(const LayerValues& inputs) override {
    return {.tensors = {at::cat(inputs.tensors, dim_)}, .masks = {mask_of_all(inputs)}};
  }

 private:
  // Along the steps the masks are put side by side; along another dimension a step counts that counts in any input.
  torch::Tensor mask_of_all(const LayerValues& inputs) const {
    if (!any_defined(inputs.masks)) return {};
    std::vector<torch::Tensor> list;
    torch::Tensor any;
    for (std::size_t i = 0; i < inputs.tensors.size(); ++i) {
      const torch::Tensor& x = inputs.tensors[i];
      if (x.dim() < 3) return {};
      const auto booleans = x.options().dtype(torch::kBool).requires_grad(false);
      list.push_back(inputs.masks[i].defined() ? inputs.masks[i] : at::ones({x.size(0), x.size(1)}, booleans));
      if (dim_ != 1) any = any.defined() ? any.logical_or(list.back()) : list.back();
    }
    return dim_ == 1 ? at::cat(list, 1) : any;
  }

  int64_t dim_;
};

class ConcatenateKind final : public GraphLayerKind {
 public:
  static constexpr std::string_view kType = "Concatenate";

  explicit ConcatenateKind(int64_t axis) : axis_(axis) {
    if (axis == 0) fail_option(kType, "axis is 0, the batch's, wanted another dimension");
  }
  std::string_view type() const override { return kType; }
  std::string_view base_name() const override { return "concatenate"; }

  std::vector<Shape> output_shapes(const BuildContext& context, const std::vector<Shape>& inputs) const override {
    if (inputs.size() < 2) fail_shapes(context, kType, inputs, "two or more");
    Shape output = inputs.front();
    const std::size_t dim = dim_of(context, inputs) - 1;
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      bool fits = inputs[i].size() == output.size();
      for (std::size_t d = 0; fits && d < output.size(); ++d) {
        if (d == dim) continue;
        fits = output[d] < 0 || inputs[i][d] < 0 || output[d] == inputs[i][d];
        output[d] = std::max(output[d], inputs[i][d]);
      }
      if (!fits) fail_shapes(context, kType, inputs, c10::str("equal sizes in all dimensions but axis ", axis_));
      output[dim] = output[dim] < 0 || inputs[i][dim] < 0 ? -1 : output[dim] + inputs[i][dim];
    }
    return {output};
  }

  std::shared_ptr<GraphLayerModule> build_for(const BuildContext& context,
                                              const std::vector<Shape>& inputs) const override {
    return std::make_shared<ConcatenateModule>(static_cast<int64_t>(dim_of(context, inputs)));
  }

 private:
  std::size_t dim_of(const BuildContext& context, const std::vector<Shape>& inputs) const {
    const auto rank = static_cast<int64_t>(inputs.front().size()) + 1;
    const int64_t dim = axis_ < 0 ? axis_ + rank : axis_;
    if (dim < 1 || dim >= rank) fail_shapes(context, kType, inputs, c10::str("a dimension ", axis_, " of each"));
    return static_cast<std::size_t>(dim);
  }

  int64_t axis_;
};

class DotModule final : public GraphLayerModule {
 public:
  DotModule(int64_t first, int64_t second, bool normalize) : first_(first), second_(second), normalize_(normalize) {}

  LayerValues forward_values(const LayerValues& inputs) override {
    torch::Tensor a = inputs.tensors[0], b = inputs.tensors[1];
    if (normalize_) a = unit_along(a, first_), b = unit_along(b, second_);
    // [batch, others of a, n] times [batch, n, others of b]
    a = a.movedim(first_, -1);
    b = b.movedim(second_, 1);
    std::vector<int64_t> shape = a.sizes().slice(0, static_cast<std::size_t>(a.dim() - 1)).vec();
    shape.insert(shape.end(), b.sizes().begin() + 2, b.sizes().end());
    if (shape.size() == 1) shape.push_back(1);
    const int64_t batch = a.size(0), n = a.size(-1);
    const auto rest = [&](const torch::Tensor& x) { return n == 0 || batch == 0 ? 0 : x.numel() / (batch * n); };
    if (batch == 0 || n == 0) return {.tensors = {empty_from({a, b}, shape)}};
    return {.tensors = {at::bmm(a.reshape({batch, rest(a), n}), b.reshape({batch, n, rest(b)})).view(shape)}};
  }

 private:
  // As keras.utils.normalize(): lengths are 1e-7 at least.
  static torch::Tensor unit_along(const torch::Tensor& x, int64_t dim) {
    return x * x.square().sum(dim, /*keepdim=*/true).clamp_min(1e-14).rsqrt();
  }

  int64_t first_;
  int64_t second_;
  bool normalize_;
};

class DotKind final : public GraphLayerKind {
 public:
  static constexpr std::string_view kType = "Dot";

  explicit DotKind(DotOptions options) : options_(std::move(options)) {
    const std::size_t count = options_.axes.size();
    if (count != 1 && count != 2) fail_option(kType, "axes has ", count, " numbers, wanted one, or one for each input");
    for (const int64_t axis : options_.axes) {
      if (axis == 0) fail_option(kType, "an axis is 0, the batch's, wanted another dimension");
    }
  }
  std::string_view type() const override { return kType; }
  std::string_view base_name() const override { return "dot"; }

  std::vector<Shape> output_shapes(const BuildContext& context, const std::vector<Shape>& inputs) const override {
    if (inputs.size() != 2) fail_shapes(context, kType, inputs, "two of them");
    const auto first = static_cast<std::size_t>(dim_of(context, inputs, 0) - 1);
    const auto second = static_cast<std::size_t>(dim_of(context, inputs, 1) - 1);
    if (inputs[0][first] >= 0 && inputs[1][second] >= 0 && inputs[0][first] != inputs[1][second]) {
      fail_shapes(context, kType, inputs, "equal sizes along the axes");
    }
    Shape output;
    for (std::size_t d = 0; d < inputs[0].size(); ++d) {
      if (d != first) output.push_back(inputs[0][d]);
    }
    for (std::size_t d = 0; d < inputs[1].size(); ++d) {
      if (d != second) output.push_back(inputs[1][d]);
    }
    if (output.empty()) output.push_back(1);
    return {output};
  }

  std::shared_ptr<GraphLayerModule> build_for(const BuildContext& context,
                                              const std::vector<Shape>& inputs) const override {
    return std::make_shared<DotModule>(dim_of(context, inputs, 0), dim_of(context, inputs, 1), options_.normalize);
  }

 private:
  int64_t dim_of(const BuildContext& context, const std::vector<Shape>& inputs, std::size_t input) const {
    const int64_t axis = options_.axes[std::min(input, options_.axes.size() - 1)];
    const auto rank = static_cast<int64_t>(inputs[input].size()) + 1;
    const int64_t dim = axis < 0 ? axis + rank : axis;
    if (dim < 1 || dim >= rank) fail_shapes(context, kType, inputs, c10::str("a dimension ", axis, " of each"));
    return dim;
  }

  DotOptions options_;
};

}  // namespace

Layer Concatenate(const ConcatenateOptions& options) {
  return Layer(made_with<ConcatenateKind>(options, options.axis), options.name);
}

Layer Add(const MergeOptions& options) {
  return merge_layer(kAdd, options);
}

Layer Subtract(const MergeOptions& options) {
  return merge_layer(kSubtract, options);
}

Layer Multiply(const MergeOptions& options) {
  return merge_layer(kMultiply, options);
}

Layer Average(const MergeOptions& options) {
  return merge_layer(kAverage, options);
}

Layer Maximum(const MergeOptions& options) {
  return merge_layer(kMaximum, options);
}

Layer Minimum(const MergeOptions& options) {
  return merge_layer(kMinimum, options);
}

Layer Dot(const DotOptions& options) {
  return make_layer<DotKind>(options);
}

}  // namespace cohort
