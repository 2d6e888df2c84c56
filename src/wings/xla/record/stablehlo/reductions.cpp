// Reductions over dimensions. Half precision is summed in single precision.
#include <cmath>

#include "wings/xla/record/stablehlo/families.h"

namespace cohort::record::stablehlo {

namespace {

Operand wide(Lowering& op, std::size_t i) {
  return op.text().convert(op.in(i), op.compute());
}
// The result has the dimensions of size 1 that keepdim asks for.
void set_shaped(Lowering& op, std::size_t k, const Operand& x) {
  op.set(k, op.text().reshape(x, op.out(k).sizes));
}

double count(const Operand& x, const Dims& dims) {
  double n = 1.0;
  for (const int64_t d : dims) n *= static_cast<double>(x.size(d));
  return n;
}

Operand mean_of(Lowering& op, const Operand& x, const Dims& dims, double divisor) {
  Text& t = op.text();
  const Operand sum = t.reduce("add", x, dims, 0.0);
  return t.binary("divide", sum, t.constant(divisor, sum.sizes, sum.element));
}

void sum_all(Lowering& op) {
  const Operand x = wide(op, 0);
  set_shaped(op, 0, op.text().reduce("add", x, all_dims(x.rank()), 0.0));
}
void sum(Lowering& op) {
  const Operand x = wide(op, 0);
  set_shaped(op, 0, op.text().reduce("add", x, op.dims(1, x.rank()), 0.0));
}
void mean_all(Lowering& op) {
  const Operand x = wide(op, 0);
  const Dims dims = all_dims(x.rank());
  set_shaped(op, 0, mean_of(op, x, dims, count(x, dims)));
}
void mean(Lowering& op) {
  const Operand x = wide(op, 0);
  const Dims dims = op.dims(1, x.rank());
  set_shaped(op, 0, mean_of(op, x, dims, count(x, dims)));
}

void prod_all(Lowering& op) {
  const Operand x = wide(op, 0);
  set_shaped(op, 0, op.text().reduce("multiply", x, all_dims(x.rank()), 1.0));
}
void prod(Lowering& op) {
  const Operand x = wide(op, 0);
  set_shaped(op, 0, op.text().reduce("multiply", x, {op.dim(1, x.rank())}, 1.0));
}

double lowest(const std::string& e) {
  return is_float(e) ? -INFINITY : 0.0;
}

// Integers begin at the limits of their type, which a double does not hold: the first element does instead.
Operand extreme(Lowering& op, const Operand& x, const Dims& dims, bool greatest) {
  Text& t = op.text();
  const char* name = greatest ? "maximum" : "minimum";
  if (is_float(x.element)) return t.reduce(name, x, dims, greatest ? -INFINITY : INFINITY);
  if (x.element == "i1") return t.reduce(greatest ? "or" : "and", x, dims, greatest ? 0.0 : 1.0);
  const Operand index = t.iota(0, x.sizes, "i64");
  return t.reduce_with_index(greatest ? "GT" : "LT", x, index, dims).first;
}
template <bool kGreatest>
void extreme_over(Lowering& op) {
  const Operand x = op.in(0);
  set_shaped(op, 0, extreme(op, x, op.dims(1, x.rank()), kGreatest));
}
template <bool kGreatest>
void extreme_all(Lowering& op) {
  const Operand x = op.in(0);
  set_shaped(op, 0, extreme(op, x, all_dims(x.rank()), kGreatest));
}
template <bool kGreatest>
void extreme_with_index(Lowering& op) {
  Text& t = op.text();
  const Operand x = op.in(0);
  if (x.rank() == 0) {
    op.set(0, x);
    return op.set(1, t.integer(0, {}, "i64"));
  }
  const int64_t d = op.dim(1, x.rank());
  const auto [value, index] = t.reduce_with_index(kGreatest ? "GT" : "LT", x, t.iota(d, x.sizes, "i64"), {d});
  set_shaped(op, 0, value);
  set_shaped(op, 1, index);
}
template <bool kGreatest>
void index_of_extreme(Lowering& op) {
  Text& t = op.text();
  Operand x = op.in(0);
  if (x.rank() == 0) return op.set(0, t.integer(0, op.out().sizes, "i64"));
  int64_t d = 0;
  if (op.has(1)) {
    d = op.dim(1, x.rank());
  } else {
    x = t.reshape(x, {static_cast<int64_t>(count(x, all_dims(x.rank())))});
  }
  set_shaped(op, 0, t.reduce_with_index(kGreatest ? "GT" : "LT", x, t.iota(d, x.sizes, "i64"), {d}).second);
}

template <bool kAny>
void truth_all(Lowering& op) {
  const Operand x = op.text().convert(op.in(0), "i1");
  set_shaped(op, 0, op.text().reduce(kAny ? "or" : "and", x, all_dims(x.rank()), kAny ? 0.0 : 1.0));
}
template <bool kAny>
void truth(Lowering& op) {
  const Operand x = op.text().convert(op.in(0), "i1");
  if (x.rank() == 0) return op.set(0, x);
  set_shaped(op, 0, op.text().reduce(kAny ? "or" : "and", x, {op.dim(1, x.rank())}, kAny ? 0.0 : 1.0));
}

// The variance with the divisor n - correction, and the mean.
std::pair<Operand, Operand> variance(Lowering& op) {
  Text& t = op.text();
  const Operand x = wide(op, 0);
  const Dims dims = op.dims(1, x.rank());
  const double n = count(x, dims);
  const double correction = op.has(2) ? op.real(2) : 1.0;
  const Operand mean = mean_of(op, x, dims, n);
  const Operand difference = t.binary("subtract", x, t.broadcast(mean, x.sizes, other_dims(x.rank(), dims)));
  const Operand squares = t.binary("multiply", difference, difference);
  return {mean_of(op, squares, dims, std::max(n - correction, 0.0)), mean};
}
void var(Lowering& op) {
  set_shaped(op, 0, variance(op).first);
}
void deviation(Lowering& op) {
  set_shaped(op, 0, op.text().unary("sqrt", variance(op).first));
}
void var_mean(Lowering& op) {
  const auto [var, mean] = variance(op);
  set_shaped(op, 0, var);
  set_shaped(op, 1, mean);
}

void norm_over(Lowering& op, std::size_t p_at, std::size_t dims_at) {
  Text& t = op.text();
  const Operand x = wide(op, 0);
  const Dims dims = dims_at == 0 ? all_dims(x.rank()) : op.dims(dims_at, x.rank());
  const double p = op.has(p_at) ? op.real(p_at) : 2.0;
  const Operand length = t.unary("abs", x);
  if (std::isinf(p)) {
    return set_shaped(op, 0, t.reduce(p > 0 ? "maximum" : "minimum", length, dims, p > 0 ? 0.0 : INFINITY));
  }
  if (p == 1.0) return set_shaped(op, 0, t.reduce("add", length, dims, 0.0));
  if (p == 2.0) return set_shaped(op, 0, t.unary("sqrt", t.reduce("add", t.binary("multiply", x, x), dims, 0.0)));
  if (p == 0.0) {
    const Operand there = t.compare("NE", x, t.constant(0.0, x.sizes, x.element));
    return set_shaped(op, 0, t.reduce("add", t.convert(there, x.element), dims, 0.0));
  }
  const Operand sum = t.reduce("add", t.binary("power", length, t.constant(p, x.sizes, x.element)), dims, 0.0);
  set_shaped(op, 0, t.binary("power", sum, t.constant(1.0 / p, sum.sizes, sum.element)));
}
void norm(Lowering& op) {
  norm_over(op, 1, 2);
}
void norm_all(Lowering& op) {
  norm_over(op, 1, 0);
}

void log_sum_exp(Lowering& op) {
  Text& t = op.text();
  const Operand x = wide(op, 0);
  const Dims dims = op.dims(1, x.rank());
  const Operand top = t.reduce("maximum", x, dims, lowest(x.element));
  const Operand zero = t.constant(0.0, top.sizes, top.element);
  const Operand finite = t.select(t.unary("is_finite", top), top, zero);
  const Operand moved = t.binary("subtract", x, t.broadcast(finite, x.sizes, other_dims(x.rank(), dims)));
  const Operand sum = t.reduce("add", t.unary("exponential", moved), dims, 0.0);
  set_shaped(op, 0, t.binary("add", t.unary("log", sum), finite));
}

// A running sum: the window of element i ends at i.
void cumsum(Lowering& op) {
  Text& t = op.text();
  const Operand x = wide(op, 0);
  if (x.rank() == 0) return op.set(0, x);
  const auto d = static_cast<std::size_t>(op.dim(1, x.rank()));
  if (x.sizes[d] == 0) return op.set(0, x);
  WindowDims window(x.rank());
  window.size[d] = x.sizes[d];
  window.low[d] = x.sizes[d] - 1;
  op.set(0, t.reduce_window("add", x, window, 0.0));
}

constexpr OperationInfo kReductions[] = {
    {"sum", sum_all},
    {"sum.dim_IntList", sum},
    {"mean", mean_all},
    {"mean.dim", mean},
    {"prod", prod_all},
    {"prod.dim_int", prod},
    {"amax", extreme_over<true>},
    {"amin", extreme_over<false>},
    {"max", extreme_all<true>},
    {"min", extreme_all<false>},
    {"max.dim", extreme_with_index<true>},
    {"min.dim", extreme_with_index<false>},
    {"argmax", index_of_extreme<true>},
    {"argmin", index_of_extreme<false>},
    {"any", truth_all<true>},
    {"any.dim", truth<true>},
    {"all", truth_all<false>},
    {"all.dim", truth<false>},
    {"var.correction", var},
    {"std.correction", deviation},
    {"var_mean.correction", var_mean},
    {"norm.ScalarOpt_dim", norm},
    {"norm.ScalarOpt_dim_dtype", norm},
    {"norm.Scalar", norm_all},
    {"norm.ScalarOpt_dtype", norm_all},
    {"linalg_vector_norm", norm},
    {"logsumexp", log_sum_exp},
    {"cumsum", cumsum},
};

}  // namespace

std::span<const OperationInfo> reduction_operations() {
  return kReductions;
}

}  // namespace cohort::record::stablehlo
