#include "tests/wings/xla/record/cases.h"

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

Case one(std::string name, torch::Tensor x, One fn) {
  return {std::move(name), [fn](const Tensors& in) { return Tensors{fn(in[0])}; }, {x}};
}
Case two(std::string name, torch::Tensor x, torch::Tensor y, Two fn) {
  return {std::move(name), [fn](const Tensors& in) { return Tensors{fn(in[0], in[1])}; }, {x, y}};
}
Case three(std::string name, torch::Tensor x, torch::Tensor y, torch::Tensor z, Three fn) {
  return {std::move(name), [fn](const Tensors& in) { return Tensors{fn(in[0], in[1], in[2])}; }, {x, y, z}};
}
Case fixed(Case c) {
  c.differentiable = false;
  return c;
}

std::vector<Case> unary_cases() {
  using T = torch::Tensor;
  const std::vector<int64_t> s{3, 4};
  return {
      one("abs", normal(s), [](const T& x) { return x.abs(); }),
      one("neg", normal(s), [](const T& x) { return -x; }),
      one("exp", normal(s), [](const T& x) { return x.exp(); }),
      one("expm1", normal(s), [](const T& x) { return x.expm1(); }),
      one("log", positive(s), [](const T& x) { return x.log(); }),
      one("log1p", positive(s), [](const T& x) { return x.log1p(); }),
      one("log2", positive(s), [](const T& x) { return x.log2(); }),
      one("log10", positive(s), [](const T& x) { return x.log10(); }),
      one("sqrt", positive(s), [](const T& x) { return x.sqrt(); }),
      one("rsqrt", positive(s), [](const T& x) { return x.rsqrt(); }),
      one("tanh", normal(s), [](const T& x) { return x.tanh(); }),
      one("sigmoid", normal(s), [](const T& x) { return x.sigmoid(); }),
      one("sin", normal(s), [](const T& x) { return x.sin(); }),
      one("cos", normal(s), [](const T& x) { return x.cos(); }),
      one("erf", normal(s), [](const T& x) { return x.erf(); }),
      one("erfinv", inside(s), [](const T& x) { return x.erfinv(); }),
      one("floor", normal(s) * 3, [](const T& x) { return x.floor(); }),
      one("ceil", normal(s) * 3, [](const T& x) { return x.ceil(); }),
      one("round", torch::tensor({0.5, 1.5, -2.5, 0.3}, torch::kDouble), [](const T& x) { return x.round(); }),
      one("trunc", normal(s) * 3, [](const T& x) { return x.trunc(); }),
      one("sign", normal(s), [](const T& x) { return x.sign(); }),
      one("sgn", normal(s), [](const T& x) { return x.sgn(); }),
      one("reciprocal", positive(s), [](const T& x) { return x.reciprocal(); }),
      one("square", normal(s), [](const T& x) { return x.square(); }),
      one("pow 2", normal(s), [](const T& x) { return x.pow(2); }),
      one("pow 3", normal(s), [](const T& x) { return x.pow(3); }),
      one("pow -0.5", positive(s), [](const T& x) { return x.pow(-0.5); }),
      one("pow of a number", normal(s), [](const T& x) { return torch::pow(1.7, x); }),
  };
}

std::vector<Case> arithmetic_cases() {
  using T = torch::Tensor;
  const std::vector<int64_t> s{3, 4};
  return {
      two("pow of tensors", positive(s), normal(s), [](const T& x, const T& y) { return x.pow(y); }),
      two("add", normal(s), normal({4}), [](const T& x, const T& y) { return x + y; }),
      two("add alpha", normal(s), normal({3, 1}), [](const T& x, const T& y) { return x.add(y, 0.3); }),
      one("add number", normal(s), [](const T& x) { return x + 0.3; }),
      two("sub alpha", normal(s), normal(s), [](const T& x, const T& y) { return x.sub(y, 0.3); }),
      one("rsub", normal(s), [](const T& x) { return torch::rsub(x, 0.7, 0.2); }),
      two("mul", normal(s), normal({3, 1}), [](const T& x, const T& y) { return x * y; }),
      one("mul number", normal(s), [](const T& x) { return x * 0.3; }),
      two("div", normal(s), positive({1, 4}), [](const T& x, const T& y) { return x / y; }),
      one("div number", normal(s), [](const T& x) { return x / 0.3; }),
      fixed(two("div floor", normal(s), positive(s), [](const T& x, const T& y) { return torch::div(x, y, "floor"); })),
      fixed(two("div trunc", normal(s), positive(s), [](const T& x, const T& y) { return torch::div(x, y, "trunc"); })),
      two("integer floor", below(11, s), below(4, s),
          [](const T& x, const T& y) { return torch::div(x - 5, y + 1, "floor"); }),
      two("integer div", below(11, s), below(4, s), [](const T& x, const T& y) { return x / (y + 1); }),
      two("remainder", normal(s), positive(s), [](const T& x, const T& y) { return x.remainder(y); }),
      two("integer remainder", below(11, s), below(4, s),
          [](const T& x, const T& y) { return (x - 5).remainder(y - 5); }),
      two("fmod", normal(s), positive(s), [](const T& x, const T& y) { return x.fmod(y); }),
      three("addcmul", normal(s), normal(s), normal({4}),
            [](const T& x, const T& y, const T& z) { return x.addcmul(y, z, 0.3); }),
      three("addcdiv", normal(s), normal(s), positive(s),
            [](const T& x, const T& y, const T& z) { return x.addcdiv(y, z, 0.3); }),
      two("lerp", normal(s), normal(s), [](const T& x, const T& y) { return x.lerp(y, 0.3); }),
      three("lerp of tensors", normal(s), normal(s), inside(s),
            [](const T& x, const T& y, const T& z) { return x.lerp(y, z); }),
      two("maximum", normal(s), normal(s), [](const T& x, const T& y) { return torch::maximum(x, y); }),
      two("minimum", normal(s), normal(s), [](const T& x, const T& y) { return torch::minimum(x, y); }),
      two("atan2", normal(s), positive(s), [](const T& x, const T& y) { return torch::atan2(x, y); }),
      three("where", mask(s), normal(s), normal({4}),
            [](const T& c, const T& x, const T& y) { return torch::where(c, x, y); }),
      two("masked_fill", normal(s), mask({3, 1}), [](const T& x, const T& m) { return x.masked_fill(m, -1.5); }),
      one("clamp", normal(s), [](const T& x) { return x.clamp(-0.4, 0.6); }),
      one("clamp_min", normal(s), [](const T& x) { return x.clamp_min(-0.4); }),
      one("clamp_max", normal(s), [](const T& x) { return x.clamp_max(0.4); }),
      one("to half and back", normal(s), [](const T& x) { return x.to(torch::kBFloat16).to(torch::kFloat) * 1.0; }),
      fixed(one("to integers", normal(s), [](const T& x) { return (x * 10).to(torch::kInt); })),
      fixed(one("to booleans", below(2, s), [](const T& x) { return x.to(torch::kBool); })),
      fixed(one("bitwise", below(9, s), [](const T& x) { return (x & 6) | (x ^ 3); })),
      fixed(one("bitwise_not", below(9, s), [](const T& x) { return x.bitwise_not(); })),
      fixed(two("logical", mask(s), mask(s),
                [](const T& x, const T& y) { return (x & y) | torch::logical_xor(x, y.logical_not()); })),
      fixed(one("isnan", torch::tensor({0.0, 1.0}, torch::kDouble), [](const T& x) { return (x / x).isnan(); })),
      fixed(one("isfinite", torch::tensor({0.0, 1.0}, torch::kDouble), [](const T& x) { return (1 / x).isfinite(); })),
      one("arange", normal(s), [](const T& x) { return x + torch::arange(2, 10, 2, x.options()); }),
      fixed(one(
          "full", normal(s),
          [](const T& x) { return torch::full_like(x, 0.3) + torch::ones_like(x) + torch::zeros({4}, x.options()); })),
  };
}

std::vector<Case> comparison_cases() {
  using T = torch::Tensor;
  const std::vector<int64_t> s{3, 4};
  std::vector<Case> cases;
  for (const char* name : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    const std::string how = name;
    const auto compare = [how](const T& x, const T& y) {
      if (how == "eq") return x == y;
      if (how == "ne") return x != y;
      if (how == "lt") return x < y;
      if (how == "le") return x <= y;
      return how == "gt" ? x > y : x >= y;
    };
    cases.push_back(fixed(two(how, below(3, s), below(3, {4}), compare)));
    cases.push_back(fixed(two(how + " of dtypes", below(3, s), below(3, s).to(torch::kDouble) + 0.5, compare)));
    cases.push_back(fixed(one(how + " number", below(3, s), [how](const T& x) {
      return how == "lt" ? x < 0.5 : how == "ge" ? x >= 0.5 : x == 1;
    })));
  }
  return cases;
}

std::vector<Case> activation_cases() {
  using T = torch::Tensor;
  const std::vector<int64_t> s{5, 7};
  return {
      one("relu", normal(s), [](const T& x) { return x.relu(); }),
      one("threshold", normal(s), [](const T& x) { return torch::threshold(x, 0.2, -0.5); }),
      one("silu", normal(s), [](const T& x) { return torch::silu(x); }),
      one("gelu", normal(s), [](const T& x) { return torch::gelu(x); }),
      one("gelu tanh", normal(s), [](const T& x) { return torch::gelu(x, "tanh"); }),
      one("leaky_relu", normal(s), [](const T& x) { return torch::leaky_relu(x, 0.13); }),
      one("elu", normal(s), [](const T& x) { return torch::elu(x, 1.3); }),
      one("selu", normal(s), [](const T& x) { return torch::selu(x); }),
      one("hardtanh", normal(s), [](const T& x) { return torch::hardtanh(x, -0.5, 0.8); }),
      one("relu6", normal(s), [](const T& x) { return torch::nn::functional::relu6(x * 4); }),
      one("hardsigmoid", normal(s), [](const T& x) { return torch::hardsigmoid(x * 3); }),
      one("hardswish", normal(s), [](const T& x) { return torch::hardswish(x * 3); }),
      one("softplus", normal(s), [](const T& x) { return torch::softplus(x, 1.5, 2); }),
      one("log_sigmoid", normal(s), [](const T& x) { return torch::log_sigmoid(x); }),
      one("mish", normal(s), [](const T& x) { return torch::mish(x * 3); }),
      one("hardshrink", normal(s), [](const T& x) { return torch::hardshrink(x, 0.7); }),
      one("softshrink", normal(s), [](const T& x) { return torch::softshrink(x, 0.7); }),
      one("glu", normal({3, 4, 2}), [](const T& x) { return torch::glu(x, 1); }),
      two("prelu", normal({2, 3, 4}), normal({3}), [](const T& x, const T& w) { return torch::prelu(x, w); }),
      two("prelu with one slope", normal(s), normal({1}), [](const T& x, const T& w) { return torch::prelu(x, w); }),
  };
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const auto family : {unary_cases, arithmetic_cases, comparison_cases, activation_cases, reduction_cases,
                            shape_cases, order_cases, writing_cases, indexing_cases, linear_cases, convolution_cases,
                            pooling_cases, normalization_cases, loss_cases}) {
    for (Case& c : family()) all.push_back(std::move(c));
  }
  return all;
}

}  // namespace cohort::record
