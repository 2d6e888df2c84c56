#include "wings/export/train/onnx/rules.h"

#include <ATen/Functions.h>

namespace cohort::exports {

namespace {

using torch::jit::Value;

}  // namespace

Rule find_rule(const std::string& operation) {
  static const Rules rules = [] {
    Rules made;
    add_elementwise_rules(made);
    add_pointwise_rules(made);
    add_shape_rules(made);
    add_part_rules(made);
    add_creation_rules(made);
    add_linear_rules(made);
    add_convolution_rules(made);
    add_normalization_rules(made);
    add_reduction_rules(made);
    add_recurrent_rules(made);
    return made;
  }();
  const auto found = rules.find(operation);
  return found == rules.end() ? nullptr : found->second;
}

bool TracedOperation::has(std::size_t i) const {
  if (i >= node.inputs().size()) return false;
  const auto value = to.known(in(i));
  return !value || !value->isNone();
}

Name TracedOperation::x_as(std::size_t i, torch::ScalarType wanted) const {
  if (const auto value = to.known(in(i)); value && value->isScalar()) {
    return to.constant(at::scalar_tensor(value->toScalar(), wanted));
  }
  return cast(x(i), is_tensor(i) ? dtype(i) : torch::kLong, wanted);
}

int64_t TracedOperation::integer(std::size_t i) const {
  const auto value = to.known(in(i));
  if (value && value->isInt()) return value->toInt();
  refuse("has a number that depends on the batch, where ONNX wants one that is known");
}

double TracedOperation::number(std::size_t i) const {
  const auto value = to.known(in(i));
  if (value && value->isScalar()) return value->toScalar().toDouble();
  refuse("has a number that depends on the batch, where ONNX wants one that is known");
}

bool TracedOperation::flag(std::size_t i) const {
  const auto value = to.known(in(i));
  if (value && value->isBool()) return value->toBool();
  refuse("has no flag where one was expected");
}

std::string TracedOperation::text(std::size_t i) const {
  const auto value = to.known(in(i));
  if (value && value->isString()) return value->toStringRef();
  refuse("has no text where one was expected");
}

Sizes TracedOperation::integers(std::size_t i) const {
  if (const auto value = to.known(in(i))) {
    if (value->isIntList()) return value->toIntVector();
    if (value->isInt()) return {value->toInt()};
    refuse("has no list of numbers where one was expected");
  }
  Sizes list;
  for (const Value* const each : to.list(in(i))) {
    const auto value = to.known(each);
    if (!value || !value->isInt()) refuse("has a size that depends on the batch, where ONNX wants one that is known");
    list.push_back(value->toInt());
  }
  return list;
}

int64_t TracedOperation::dim(std::size_t i, std::size_t of) const {
  const int64_t dim = integer(i);
  return dim < 0 ? dim + rank(of) : dim;
}

torch::ScalarType TracedOperation::dtype_of(const Value* value) const {
  if (const torch::Tensor known = to.known_tensor(value); known.defined()) return known.scalar_type();
  if (const auto type = value->type()->cast<c10::TensorType>()) {
    if (type->scalarType()) return *type->scalarType();
  }
  to.refuse(node, "has a tensor of an unknown dtype");
}

Sizes TracedOperation::sizes_of(const Value* value) const {
  if (const torch::Tensor known = to.known_tensor(value); known.defined()) return known.sizes().vec();
  if (const auto type = value->type()->cast<c10::TensorType>()) {
    if (const auto sizes = type->sizes().concrete_sizes()) return *sizes;
  }
  to.refuse(node, "has a tensor of an unknown shape");
}

int64_t TracedOperation::known_size(std::size_t i, int64_t dim) const {
  if (to.depends_on_batch(in(i), dim)) refuse(c10::str("divides dimension ", dim, ", whose size depends on the batch"));
  return sizes(i)[static_cast<std::size_t>(dim)];
}

Name TracedOperation::shape(std::size_t i, bool may_infer) const {
  if (const auto value = to.known(in(i)); value && value->isIntList()) return to.integers(value->toIntVector());
  const std::vector<const Value*> list = to.list(in(i));
  Sizes known;
  int64_t unknown = 0;
  bool infers = false;
  for (const Value* const each : list) {
    const auto value = to.known(each);
    if (!value) ++unknown;
    known.push_back(value ? value->toInt() : -1);
    infers = infers || (value && value->toInt() == -1);
  }
  if (unknown == 0 || (may_infer && unknown == 1 && !infers)) return to.integers(known);
  Names parts;
  for (std::size_t k = 0; k < list.size(); ++k) {
    parts.push_back(to.known(list[k]) ? to.integers({known[k]})
                                      : add("Unsqueeze", {to.tensor(list[k]), to.integers({0})}));
  }
  return add("Concat", parts, {{"axis", int64_t{0}}});
}

Name TracedOperation::cast(const Name& x, torch::ScalarType from, torch::ScalarType wanted) const {
  if (from == wanted) return x;
  const auto number = onnx_dtype(wanted);
  if (!number) refuse(c10::str("makes ", wanted, ", for which ONNX's operations have no form here"));
  return add("Cast", {x}, {{"to", int64_t{*number}}});
}

Name TracedOperation::scalar(double value, torch::ScalarType wanted) const {
  return to.constant(at::scalar_tensor(value, wanted));
}

}  // namespace cohort::exports
