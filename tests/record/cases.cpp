#include "tests/record/cases.h"

namespace cohort::record {

torch::Tensor normal(c10::IntArrayRef sizes) {
  return torch::randn(sizes, torch::kDouble);
}
torch::Tensor positive(c10::IntArrayRef sizes) {
  return torch::rand(sizes, torch::kDouble) * 1.9 + 0.1;
}
torch::Tensor inside(c10::IntArrayRef sizes) {
  return torch::rand(sizes, torch::kDouble) * 1.8 - 0.9;
}
torch::Tensor below(int64_t bound, c10::IntArrayRef sizes) {
  return torch::randint(bound, sizes, torch::kLong);
}
torch::Tensor mask(c10::IntArrayRef sizes) {
  return torch::rand(sizes) < 0.5;
}

Case one(std::string name, std::function<torch::Tensor(const torch::Tensor&)> fn, torch::Tensor x,
         bool differentiable) {
  return {std::move(name), [fn](const Tensors& in) { return Tensors{fn(in[0])}; }, {x}, differentiable};
}
Case two(std::string name, std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)> fn, torch::Tensor x,
         torch::Tensor y, bool differentiable) {
  return {std::move(name), [fn](const Tensors& in) { return Tensors{fn(in[0], in[1])}; }, {x, y}, differentiable};
}
Case three(std::string name,
           std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&)> fn,
           torch::Tensor x, torch::Tensor y, torch::Tensor z, bool differentiable) {
  return {
      std::move(name), [fn](const Tensors& in) { return Tensors{fn(in[0], in[1], in[2])}; }, {x, y, z}, differentiable};
}

std::vector<Case> elementwise_cases() {
  using T = torch::Tensor;
  const std::vector<int64_t> s{3, 4};
  std::vector<Case> cases{
      one(
          "abs", [](const T& x) { return x.abs(); }, normal(s)),
      one(
          "neg", [](const T& x) { return -x; }, normal(s)),
      one(
          "exp", [](const T& x) { return x.exp(); }, normal(s)),
      one(
          "expm1", [](const T& x) { return x.expm1(); }, normal(s)),
      one(
          "log", [](const T& x) { return x.log(); }, positive(s)),
      one(
          "log1p", [](const T& x) { return x.log1p(); }, positive(s)),
      one(
          "log2", [](const T& x) { return x.log2(); }, positive(s)),
      one(
          "log10", [](const T& x) { return x.log10(); }, positive(s)),
      one(
          "sqrt", [](const T& x) { return x.sqrt(); }, positive(s)),
      one(
          "rsqrt", [](const T& x) { return x.rsqrt(); }, positive(s)),
      one(
          "tanh", [](const T& x) { return x.tanh(); }, normal(s)),
      one(
          "sigmoid", [](const T& x) { return x.sigmoid(); }, normal(s)),
      one(
          "sin", [](const T& x) { return x.sin(); }, normal(s)),
      one(
          "cos", [](const T& x) { return x.cos(); }, normal(s)),
      one(
          "erf", [](const T& x) { return x.erf(); }, normal(s)),
      one(
          "erfinv", [](const T& x) { return x.erfinv(); }, inside(s)),
      one(
          "floor", [](const T& x) { return x.floor(); }, normal(s) * 3),
      one(
          "ceil", [](const T& x) { return x.ceil(); }, normal(s) * 3),
      one(
          "round", [](const T& x) { return x.round(); }, torch::tensor({0.5, 1.5, -2.5, 0.3}, torch::kDouble)),
      one(
          "trunc", [](const T& x) { return x.trunc(); }, normal(s) * 3),
      one(
          "sign", [](const T& x) { return x.sign(); }, normal(s)),
      one(
          "sgn", [](const T& x) { return x.sgn(); }, normal(s)),
      one(
          "reciprocal", [](const T& x) { return x.reciprocal(); }, positive(s)),
      one(
          "square", [](const T& x) { return x.square(); }, normal(s)),
      one(
          "pow 2", [](const T& x) { return x.pow(2); }, normal(s)),
      one(
          "pow 3", [](const T& x) { return x.pow(3); }, normal(s)),
      one(
          "pow -0.5", [](const T& x) { return x.pow(-0.5); }, positive(s)),
      one(
          "pow of a number", [](const T& x) { return torch::pow(1.7, x); }, normal(s)),
      two(
          "pow of tensors", [](const T& x, const T& y) { return x.pow(y); }, positive(s), normal(s)),
      two(
          "add", [](const T& x, const T& y) { return x + y; }, normal(s), normal({4})),
      two(
          "add alpha", [](const T& x, const T& y) { return x.add(y, 0.3); }, normal(s), normal({3, 1})),
      one(
          "add number", [](const T& x) { return x + 0.3; }, normal(s)),
      two(
          "sub alpha", [](const T& x, const T& y) { return x.sub(y, 0.3); }, normal(s), normal(s)),
      one(
          "rsub", [](const T& x) { return torch::rsub(x, 0.7, 0.2); }, normal(s)),
      two(
          "mul", [](const T& x, const T& y) { return x * y; }, normal(s), normal({3, 1})),
      one(
          "mul number", [](const T& x) { return x * 0.3; }, normal(s)),
      two(
          "div", [](const T& x, const T& y) { return x / y; }, normal(s), positive({1, 4})),
      one(
          "div number", [](const T& x) { return x / 0.3; }, normal(s)),
      two(
          "div floor", [](const T& x, const T& y) { return torch::div(x, y, "floor"); }, normal(s), positive(s), false),
      two(
          "div trunc", [](const T& x, const T& y) { return torch::div(x, y, "trunc"); }, normal(s), positive(s), false),
      two(
          "integer floor", [](const T& x, const T& y) { return torch::div(x - 5, y + 1, "floor"); }, below(11, s),
          below(4, s)),
      two(
          "integer div", [](const T& x, const T& y) { return x / (y + 1); }, below(11, s), below(4, s)),
      two(
          "remainder", [](const T& x, const T& y) { return x.remainder(y); }, normal(s), positive(s)),
      two(
          "integer remainder", [](const T& x, const T& y) { return (x - 5).remainder(y - 5); }, below(11, s),
          below(4, s)),
      two(
          "fmod", [](const T& x, const T& y) { return x.fmod(y); }, normal(s), positive(s)),
      three(
          "addcmul", [](const T& x, const T& y, const T& z) { return x.addcmul(y, z, 0.3); }, normal(s), normal(s),
          normal({4})),
      three(
          "addcdiv", [](const T& x, const T& y, const T& z) { return x.addcdiv(y, z, 0.3); }, normal(s), normal(s),
          positive(s)),
      two(
          "lerp", [](const T& x, const T& y) { return x.lerp(y, 0.3); }, normal(s), normal(s)),
      three(
          "lerp of tensors", [](const T& x, const T& y, const T& z) { return x.lerp(y, z); }, normal(s), normal(s),
          inside(s)),
      two(
          "maximum", [](const T& x, const T& y) { return torch::maximum(x, y); }, normal(s), normal(s)),
      two(
          "minimum", [](const T& x, const T& y) { return torch::minimum(x, y); }, normal(s), normal(s)),
      two(
          "atan2", [](const T& x, const T& y) { return torch::atan2(x, y); }, normal(s), positive(s)),
      three(
          "where", [](const T& c, const T& x, const T& y) { return torch::where(c, x, y); }, mask(s), normal(s),
          normal({4})),
      two(
          "masked_fill", [](const T& x, const T& m) { return x.masked_fill(m, -1.5); }, normal(s), mask({3, 1})),
      one(
          "clamp", [](const T& x) { return x.clamp(-0.4, 0.6); }, normal(s)),
      one(
          "clamp_min", [](const T& x) { return x.clamp_min(-0.4); }, normal(s)),
      one(
          "clamp_max", [](const T& x) { return x.clamp_max(0.4); }, normal(s)),
      one(
          "to half and back", [](const T& x) { return x.to(torch::kBFloat16).to(torch::kFloat) * 1.0; }, normal(s)),
      one(
          "to integers", [](const T& x) { return (x * 10).to(torch::kInt); }, normal(s), false),
      one(
          "to booleans", [](const T& x) { return x.to(torch::kBool); }, below(2, s), false),
      one(
          "bitwise", [](const T& x) { return (x & 6) | (x ^ 3); }, below(9, s), false),
      one(
          "bitwise_not", [](const T& x) { return x.bitwise_not(); }, below(9, s), false),
      two(
          "logical", [](const T& x, const T& y) { return (x & y) | torch::logical_xor(x, y.logical_not()); }, mask(s),
          mask(s), false),
      one(
          "isnan", [](const T& x) { return (x / x).isnan(); }, torch::tensor({0.0, 1.0}, torch::kDouble), false),
      one(
          "isfinite", [](const T& x) { return (1 / x).isfinite(); }, torch::tensor({0.0, 1.0}, torch::kDouble), false),
      one(
          "arange", [](const T& x) { return x + torch::arange(2, 10, 2, x.options()); }, normal(s)),
      one(
          "full",
          [](const T& x) { return torch::full_like(x, 0.3) + torch::ones_like(x) + torch::zeros({4}, x.options()); },
          normal(s), false),
  };
  for (const char* name : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    const std::string how = name;
    const auto compare = [how](const T& x, const T& y) {
      if (how == "eq") return x == y;
      if (how == "ne") return x != y;
      if (how == "lt") return x < y;
      if (how == "le") return x <= y;
      return how == "gt" ? x > y : x >= y;
    };
    cases.push_back(two(how, compare, below(3, s), below(3, {4}), false));
    cases.push_back(two(how + " of dtypes", compare, below(3, s), below(3, s).to(torch::kDouble) + 0.5, false));
    cases.push_back(one(
        how + " number", [how](const T& x) { return how == "lt"   ? x < 0.5
                                                    : how == "ge" ? x >= 0.5
                                                                  : x == 1; },
        below(3, s), false));
  }
  return cases;
}

std::vector<Case> activation_cases() {
  using T = torch::Tensor;
  const std::vector<int64_t> s{5, 7};
  return {
      one(
          "relu", [](const T& x) { return x.relu(); }, normal(s)),
      one(
          "threshold", [](const T& x) { return torch::threshold(x, 0.2, -0.5); }, normal(s)),
      one(
          "silu", [](const T& x) { return torch::silu(x); }, normal(s)),
      one(
          "gelu", [](const T& x) { return torch::gelu(x); }, normal(s)),
      one(
          "gelu tanh", [](const T& x) { return torch::gelu(x, "tanh"); }, normal(s)),
      one(
          "leaky_relu", [](const T& x) { return torch::leaky_relu(x, 0.13); }, normal(s)),
      one(
          "elu", [](const T& x) { return torch::elu(x, 1.3); }, normal(s)),
      one(
          "selu", [](const T& x) { return torch::selu(x); }, normal(s)),
      one(
          "hardtanh", [](const T& x) { return torch::hardtanh(x, -0.5, 0.8); }, normal(s)),
      one(
          "relu6", [](const T& x) { return torch::nn::functional::relu6(x * 4); }, normal(s)),
      one(
          "hardsigmoid", [](const T& x) { return torch::hardsigmoid(x * 3); }, normal(s)),
      one(
          "hardswish", [](const T& x) { return torch::hardswish(x * 3); }, normal(s)),
      one(
          "softplus", [](const T& x) { return torch::softplus(x, 1.5, 2); }, normal(s)),
      one(
          "log_sigmoid", [](const T& x) { return torch::log_sigmoid(x); }, normal(s)),
      one(
          "mish", [](const T& x) { return x * torch::softplus(x).tanh(); }, normal(s)),
  };
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const auto family : {elementwise_cases, activation_cases, reduction_cases, shape_cases, indexing_cases,
                            linear_cases, convolution_cases, pooling_cases, normalization_cases, loss_cases}) {
    for (Case& c : family()) all.push_back(std::move(c));
  }
  return all;
}

}  // namespace cohort::record
