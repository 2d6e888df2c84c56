// Operations on symbolic tensors: arithmetic, parts of tensors, functions of the user's. Each is a layer without
// parameters, whose output's shape is found by calling it on zeros.
#include <ATen/Functions.h>

#include "cohort/train/layers/merging.h"
#include "train/layers/support.h"
#include "wings/functional/train/symbolic.h"

namespace cohort {

namespace {

using Function = std::function<torch::Tensor(const std::vector<torch::Tensor>&)>;

class FunctionModule final : public GraphLayerModule {
 public:
  FunctionModule(Function function, std::string name) : function_(std::move(function)), name_(std::move(name)) {}

  LayerValues forward_values(const LayerValues& inputs) override { return {.tensors = {function_(inputs.tensors)}}; }

 private:
  Function function_;
  std::string name_;
};

// Base: GraphLayerKind, or OperationKind for operators.
template <typename Base>
class FunctionKind final : public Base {
 public:
  FunctionKind(std::string type, std::string base_name, Function function)
      : type_(std::move(type)), base_name_(std::move(base_name)), function_(std::move(function)) {}
  std::string_view type() const override { return type_; }
  std::string_view base_name() const override { return base_name_; }

  // Dimensions that are not known have two sizes in turn: those of the output that differ then are not known either.
  std::vector<Shape> output_shapes(const BuildContext& context, const std::vector<Shape>& inputs) const override {
    Shape output = called(context, inputs, 3);
    bool known = true;
    for (const Shape& each : inputs) known = known && std::find(each.begin(), each.end(), -1) == each.end();
    if (known) return {output};
    const Shape other = called(context, inputs, 5);
    for (std::size_t d = 0; d < output.size() && d < other.size(); ++d) {
      if (output[d] != other[d]) output[d] = -1;
    }
    return {output};
  }

  std::shared_ptr<GraphLayerModule> build_for(const BuildContext& context,
                                              const std::vector<Shape>& /*inputs*/) const override {
    return std::make_shared<FunctionModule>(function_, context.name);
  }

 private:
  Shape called(const BuildContext& context, const std::vector<Shape>& inputs, int64_t unknown) const {
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> zeros;
    for (const Shape& each : inputs) {
      std::vector<int64_t> sizes = {2};
      for (const int64_t size : each) sizes.push_back(size < 0 ? unknown : size);
      zeros.push_back(at::zeros(sizes, torch::dtype(zeros.empty() ? context.input_dtype : context.dtype)));
    }
    torch::Tensor output;
    try {
      output = function_(zeros);
    } catch (const c10::Error& error) {
      fail<InvalidArgument>("[layers] ", context.name, " (", type_, "): ", error.what_without_backtrace());
    }
    if (output.defined() && output.dim() > 0 && output.size(0) == 2) return output.sizes().slice(1).vec();
    fail<InvalidArgument>("[layers] ", context.name, " (", type_, "): of 2 examples it makes ",
                          output.defined() ? c10::str("shape ", output.sizes()) : std::string("an undefined tensor"),
                          ", wanted [2, ...]");
  }

  std::string type_;
  std::string base_name_;
  Function function_;
};

SymbolicTensor operation(std::string type, std::string base_name, const std::vector<SymbolicTensor>& inputs,
                         Function function, const std::any& given = {}) {
  const Layer layer(
      made_with<FunctionKind<OperationKind>>(given, std::move(type), std::move(base_name), std::move(function)));
  return layer(inputs);
}

using Tensors = std::vector<torch::Tensor>;

// Returns the output of an operation whose elements are true or false.
SymbolicTensor mask_of(const SymbolicTensor& output) {
  detail::SymbolicNode node = *output.node();
  node.dtype = torch::kBool;
  return note_call(std::move(node)).front();
}

// `of` takes two tensors, or a tensor and a number.
template <typename Of>
SymbolicTensor arithmetic(std::string type, std::string base_name, const SymbolicOperand& a, const SymbolicOperand& b,
                          Of of) {
  const auto side = [](const SymbolicOperand& operand) {
    return operand.tensor() ? std::nullopt : std::optional<double>(operand.number());
  };
  const OperationSides sides = {side(a), side(b)};
  if (a.tensor() && b.tensor()) {
    return operation(
        std::move(type), std::move(base_name), {*a.tensor(), *b.tensor()},
        [of](const Tensors& x) { return of(x[0], x[1]); }, sides);
  }
  if (!a.tensor() && !b.tensor()) fail<InvalidArgument>("[model] ", type, ": both sides are numbers, wanted a tensor");
  if (a.tensor()) {
    return operation(
        std::move(type), std::move(base_name), {*a.tensor()},
        [of, number = b.number()](const Tensors& x) { return of(x[0], number); }, sides);
  }
  return operation(
      std::move(type), std::move(base_name), {*b.tensor()},
      [of, number = a.number()](const Tensors& x) { return of(number, x[0]); }, sides);
}

std::size_t known_dim(const SymbolicTensor& x, const char* who, int64_t dim) {
  const auto rank = static_cast<int64_t>(x.shape().size()) + 1;
  const int64_t counted = dim < 0 ? dim + rank : dim;
  if (counted >= 1 && counted < rank) return static_cast<std::size_t>(counted);
  fail<InvalidArgument>("[model] ", who, ": the dimension is ", dim, " of examples of ", to_text(x.shape()),
                        ", wanted one of them; the batch's is 0");
}

SymbolicTensor elementwise(const char* type, const char* base_name, const SymbolicTensor& a,
                           torch::Tensor (*of)(const torch::Tensor&)) {
  return operation(
      type, base_name, {a}, [of](const Tensors& x) { return of(x[0]); }, OperationSides(1));
}

// `of` takes two tensors; a number becomes one of the other's dtype.
template <typename X, typename Y>
torch::Tensor with_tensors(const X& x, const Y& y, torch::Tensor (*of)(const torch::Tensor&, const torch::Tensor&)) {
  if constexpr (std::is_same_v<X, double>) {
    return of(at::scalar_tensor(x, y.options()), y);
  } else if constexpr (std::is_same_v<Y, double>) {
    return of(x, at::scalar_tensor(y, x.options()));
  } else {
    return of(x, y);
  }
}

// `of` takes a tensor and a dimension.
template <typename Of>
SymbolicTensor along(const char* type, const char* base_name, const SymbolicTensor& x, const AxisOptions& options,
                     Of of) {
  const auto dim = static_cast<int64_t>(known_dim(x, base_name, options.axis));
  return operation(
      type, base_name, {x}, [of, dim](const Tensors& each) { return of(each[0], dim); }, options);
}

}  // namespace

SymbolicTensor operator+(const SymbolicOperand& a, const SymbolicOperand& b) {
  return arithmetic("Add", "add", a, b, [](const auto& x, const auto& y) { return x + y; });
}
SymbolicTensor operator-(const SymbolicOperand& a, const SymbolicOperand& b) {
  return arithmetic("Subtract", "subtract", a, b, [](const auto& x, const auto& y) { return x - y; });
}
SymbolicTensor operator*(const SymbolicOperand& a, const SymbolicOperand& b) {
  return arithmetic("Multiply", "multiply", a, b, [](const auto& x, const auto& y) { return x * y; });
}
SymbolicTensor operator/(const SymbolicOperand& a, const SymbolicOperand& b) {
  return arithmetic("Divide", "divide", a, b, [](const auto& x, const auto& y) { return x / y; });
}
SymbolicTensor operator-(const SymbolicTensor& a) {
  return elementwise("Negative", "negative", a, at::neg);
}
SymbolicTensor abs(const SymbolicTensor& x) {
  return elementwise("Absolute", "absolute", x, at::abs);
}
SymbolicTensor exp(const SymbolicTensor& x) {
  return elementwise("Exp", "exp", x, at::exp);
}
SymbolicTensor log(const SymbolicTensor& x) {
  return elementwise("Log", "log", x, at::log);
}
SymbolicTensor sqrt(const SymbolicTensor& x) {
  return elementwise("Sqrt", "sqrt", x, at::sqrt);
}
SymbolicTensor square(const SymbolicTensor& x) {
  return elementwise("Square", "square", x, at::square);
}
SymbolicTensor tanh(const SymbolicTensor& x) {
  return elementwise("Tanh", "tanh", x, at::tanh);
}

SymbolicTensor relu(const SymbolicTensor& x) {
  return elementwise("Relu", "relu", x, at::relu);
}
SymbolicTensor sigmoid(const SymbolicTensor& x) {
  return elementwise("Sigmoid", "sigmoid", x, at::sigmoid);
}
SymbolicTensor silu(const SymbolicTensor& x) {
  return elementwise("Silu", "silu", x, at::silu);
}

SymbolicTensor maximum(const SymbolicOperand& a, const SymbolicOperand& b) {
  return arithmetic("Maximum", "maximum", a, b,
                    [](const auto& x, const auto& y) { return with_tensors(x, y, at::maximum); });
}
SymbolicTensor minimum(const SymbolicOperand& a, const SymbolicOperand& b) {
  return arithmetic("Minimum", "minimum", a, b,
                    [](const auto& x, const auto& y) { return with_tensors(x, y, at::minimum); });
}
SymbolicTensor pow(const SymbolicOperand& a, const SymbolicOperand& b) {
  return arithmetic("Power", "power", a, b, [](const auto& x, const auto& y) { return at::pow(x, y); });
}

SymbolicTensor sum(const SymbolicTensor& x, int64_t axis, bool keepdims) {
  return along("Sum", "sum", x, {axis, keepdims},
               [=](const torch::Tensor& each, int64_t dim) { return each.sum(dim, keepdims); });
}
SymbolicTensor mean(const SymbolicTensor& x, int64_t axis, bool keepdims) {
  return along("Mean", "mean", x, {axis, keepdims},
               [=](const torch::Tensor& each, int64_t dim) { return each.mean(dim, keepdims); });
}
SymbolicTensor max(const SymbolicTensor& x, int64_t axis, bool keepdims) {
  return along("Max", "max", x, {axis, keepdims},
               [=](const torch::Tensor& each, int64_t dim) { return each.amax(dim, keepdims); });
}
SymbolicTensor min(const SymbolicTensor& x, int64_t axis, bool keepdims) {
  return along("Min", "min", x, {axis, keepdims},
               [=](const torch::Tensor& each, int64_t dim) { return each.amin(dim, keepdims); });
}

SymbolicTensor not_equal(const SymbolicOperand& a, const SymbolicOperand& b) {
  return mask_of(arithmetic("NotEqual", "not_equal", a, b, [](const auto& x, const auto& y) {
    if constexpr (std::is_same_v<decltype(x), const double&>) {
      return y.ne(x);
    } else {
      return x.ne(y);
    }
  }));
}
SymbolicTensor any(const SymbolicTensor& x, int64_t axis, bool keepdims) {
  return mask_of(along("Any", "any", x, {axis, keepdims},
                       [=](const torch::Tensor& each, int64_t dim) { return each.ne(0).any(dim, keepdims); }));
}
SymbolicTensor logical_or(const SymbolicTensor& a, const SymbolicTensor& b) {
  return mask_of(operation(
      "LogicalOr", "logical_or", {a, b}, [](const Tensors& x) { return x[0].logical_or(x[1]); }, OperationSides(2)));
}
SymbolicTensor logical_and(const SymbolicTensor& a, const SymbolicTensor& b) {
  return mask_of(operation(
      "LogicalAnd", "logical_and", {a, b}, [](const Tensors& x) { return x[0].logical_and(x[1]); }, OperationSides(2)));
}

SymbolicTensor SymbolicTensor::slice(int64_t dim, int64_t begin, std::optional<int64_t> end, int64_t step) const {
  const std::size_t counted = known_dim(*this, "slice", dim);
  const int64_t size = shape()[counted - 1];
  if (step < 1) fail<InvalidArgument>("[model] slice: step is ", step, ", wanted 1 or more");
  if (size >= 0) {
    const int64_t first = begin < 0 ? begin + size : begin;
    const int64_t last = !end ? size : *end < 0 ? *end + size : *end;
    if (first < 0 || last > size || first >= last) {
      fail<InvalidArgument>("[model] slice: from ", begin, " to ", end ? std::to_string(*end) : std::string("the end"),
                            " of a dimension of ", size, ", wanted elements that there are");
    }
  }
  const auto of_dim = static_cast<int64_t>(counted);
  const auto take = [of_dim, begin, end, step](const Tensors& x) {
    return at::slice(x[0], of_dim, begin, end ? c10::optional<int64_t>(*end) : c10::nullopt, step);
  };
  return operation("GetItem", "get_item", {*this}, take,
                   ItemOptions{.dim = of_dim, .begin = begin, .end = end, .step = step});
}

SymbolicTensor SymbolicTensor::select(int64_t dim, int64_t index) const {
  const std::size_t counted = known_dim(*this, "select", dim);
  const int64_t size = shape()[counted - 1];
  if (size >= 0 && (index < -size || index >= size)) {
    fail<InvalidArgument>("[model] select: the index is ", index, " of a dimension of ", size);
  }
  const auto of_dim = static_cast<int64_t>(counted);
  return operation(
      "GetItem", "get_item", {*this}, [of_dim, index](const Tensors& x) { return at::select(x[0], of_dim, index); },
      ItemOptions{.dim = of_dim, .index = index});
}

Layer MergeLambda(Function function, std::string name) {
  if (!function) fail_option("MergeLambda", "the function is empty");
  return Layer(std::make_shared<FunctionKind<GraphLayerKind>>("Lambda", "lambda", std::move(function)),
               std::move(name));
}

}  // namespace cohort
