#include "wings/mesh/strategy/space/rules.h"

#include <ATen/Functions.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/fail.h"
#include "base/operation_refused.h"
#include "strategy/along_line.h"

namespace cohort::space {

namespace {

const Rules& rules() {
  static const Rules& table = *[] {
    auto made = std::make_unique<Rules>();
    add_pointwise_rules(*made);
    add_shape_rules(*made);
    add_reduction_rules(*made);
    add_window_rules(*made);
    add_convolution_rules(*made);
    add_resampling_rules(*made);
    add_norm_rules(*made);
    add_product_rules(*made);
    add_attention_rules(*made);
    return made.release();
  }();
  return table;
}

// Operations that are made of others are done by the others' rules.
void call_by_rule(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  DividedCall call(op, *stack);
  if (!call.divided().defined()) return op.callBoxed(stack);  // a view of nothing: cannot be
  if (call.writes_elsewhere()) call.refuse("it writes to one of its arguments");
  auto rule = rules().find(call.name());
  if (rule == rules().end()) rule = rules().find(call.short_name());
  if (rule != rules().end()) return rule->second(call);
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    return op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
  }
  call.refuse("there is no rule for it");
}

}  // namespace

void install_rules() {
  // Kept although nobody reads it: it says that the library is no leak.
  [[gnu::used]] static const torch::Library* const library = [] {
    auto made = std::make_unique<torch::Library>(torch::Library::IMPL, "_", c10::make_optional(kDividedKey), __FILE__,
                                                 static_cast<uint32_t>(__LINE__));
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&call_by_rule>());
    return made.release();
  }();
}

DividedCall::DividedCall(const c10::OperatorHandle& op, torch::jit::Stack& stack)
    : op_(op), stack_(stack), size_(op.schema().arguments().size()), name_(op.schema().name()) {
  if (!op.schema().overload_name().empty()) name_ += "." + op.schema().overload_name();
}

std::string DividedCall::short_name() const {
  const std::string& name = op_.schema().name();
  return name.substr(name.rfind(':') + 1);
}

bool DividedCall::in_place() const {
  const std::string name = short_name();
  return name.back() == '_';
}

bool DividedCall::writes_elsewhere() const {
  for (std::size_t i = in_place() ? 1 : 0; i < size_; ++i) {
    const auto* alias = op_.schema().arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) return true;
  }
  return false;
}

std::optional<std::size_t> DividedCall::find(std::string_view name) const {
  for (std::size_t i = 0; i < size_; ++i) {
    if (op_.schema().arguments()[i].name() == name) return i;
  }
  return std::nullopt;
}

torch::Tensor DividedCall::divided() {
  for (std::size_t i = 0; i < size_; ++i) {
    const c10::IValue& value = (*this)[i];
    if (value.isTensor() && is_divided(value.toTensor())) return value.toTensor();
    if (!value.isTensorList()) continue;
    for (const torch::Tensor& each : value.toTensorVector()) {
      if (is_divided(each)) return each;
    }
  }
  return {};
}

void DividedCall::forward() {
  op_.callBoxed(&stack_);
  size_ = op_.schema().returns().size();
}

void DividedCall::finish(std::vector<c10::IValue> results) {
  torch::jit::drop(stack_, size_);
  size_ = results.size();
  for (c10::IValue& each : results) stack_.push_back(std::move(each));
}

void DividedCall::divide_results(const Layout& layout) {
  const auto wrap = [&](const torch::Tensor& part) {
    Layout own = layout;
    own.sizes = part.sizes().vec();
    for (const int64_t dim : layout.cut_dims()) {
      own.sizes[static_cast<std::size_t>(dim)] = layout.sizes[static_cast<std::size_t>(dim)];
    }
    return make_divided(part, std::move(own));
  };
  for (std::size_t i = 0; i < size_; ++i) {
    c10::IValue& value = (*this)[i];
    if (value.isTensor() && value.toTensor().defined()) value = wrap(value.toTensor());
    if (!value.isTensorList()) continue;
    std::vector<torch::Tensor> list = value.toTensorVector();
    for (torch::Tensor& each : list) each = wrap(each);
    value = list;
  }
}

void DividedCall::refuse(const std::string& why) {
  const torch::Tensor tensor = divided();
  std::string text = c10::str("[space] ", op_.schema().name());
  if (tensor.defined()) {
    const Layout& layout = layout_of(tensor);
    text += c10::str(" of a tensor of ", c10::IntArrayRef(layout.sizes), ", cut");
    for (const int64_t dim : layout.cut_dims()) {
      const auto axis = static_cast<std::size_t>(layout.axes[static_cast<std::size_t>(dim)]);
      text += c10::str(dim == layout.cut_dims().front() ? " in " : " and ", layout.grid.parts[axis],
                       " parts along dimension ", dim);
    }
  }
  for (std::size_t i = 0; i < size_; ++i) {
    const torch::Tensor other = this->tensor(i);
    if (other.defined() && other.dim() > 1 && !is_divided(other))
      text += c10::str(", with a tensor of ", other.sizes());
  }
  fail<OperationRefused>(
      text, ", cannot be computed in parts: ", why,
      "; gather the tensor first (experimental_replicate_to_logical_devices), or leave the dimension "
      "whole");
}

int64_t wrapped(int64_t dim, int64_t rank) {
  return dim < 0 ? dim + std::max<int64_t>(rank, 1) : dim;
}

torch::Tensor shared(const torch::Tensor& whole, const Layout& layout) {
  const bool learns = whole.defined() && torch::GradMode::is_enabled() && whole.requires_grad();
  return learns ? enter_line(whole, *layout.grid.line) : whole;
}

torch::Tensor matching_part(DividedCall& call, const torch::Tensor& tensor, const Layout& layout) {
  const bool divided = is_divided(tensor);
  torch::Tensor part = divided ? part_of(tensor) : shared(tensor, layout);
  const int64_t offset = layout.dim() - tensor.dim();
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    const int axis = layout.axes[static_cast<std::size_t>(dim + offset)];
    const int64_t size = layout.sizes[static_cast<std::size_t>(dim + offset)];
    const int own = divided ? layout_of(tensor).axes[static_cast<std::size_t>(dim)] : kWhole;
    if (own == axis && (axis == kWhole || tensor.size(dim) == size)) continue;
    if (own != kWhole) call.refuse("its other operands are cut along other dimensions, or not along as many");
    if (tensor.size(dim) == 1) continue;
    if (divided) call.refuse("its operands are cut along different dimensions");
    part = part.narrow(dim, layout.own(dim + offset).begin, layout.own(dim + offset).size());
  }
  return part;
}

void call_whole(DividedCall& call) {
  if (call.in_place()) call.refuse("it changes a tensor of which this replica has a part");
  for (std::size_t i = 0; i < call.size(); ++i) {
    c10::IValue& value = call[i];
    if (value.isTensor()) value = whole_of(value.toTensor());
    if (!value.isTensorList()) continue;
    std::vector<torch::Tensor> list = value.toTensorVector();
    for (torch::Tensor& each : list) each = whole_of(each);
    value = list;
  }
  call.forward();
}

torch::Tensor empty_part(const std::vector<int64_t>& sizes, const std::vector<torch::Tensor>& from) {
  torch::Tensor part = at::zeros(sizes, from.front().options().requires_grad(false));
  for (const torch::Tensor& each : from) {
    if (each.defined() && each.requires_grad() && torch::GradMode::is_enabled()) part = part + each.sum() * 0.0;
  }
  return part;
}

torch::Tensor pad(const torch::Tensor& part, const std::vector<int64_t>& padding, const at::Scalar& fill) {
  std::vector<int64_t> sizes = part.sizes().vec();
  for (std::size_t i = 0; i < padding.size(); ++i) sizes[sizes.size() - 1 - i / 2] += padding[i];
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return empty_part(sizes, {part});
  return at::constant_pad_nd(part, padding, fill);
}

}  // namespace cohort::space
