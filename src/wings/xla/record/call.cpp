#include "wings/xla/record/call.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/TypeProperties.h>

#include "base/fail.h"
#include "base/log.h"
#include "wings/xla/record/cell.h"

namespace cohort::record {

namespace {

bool is_tensor(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined();
}

bool is_tensor_list(const c10::IValue& value) {
  if (!value.isList() || value.isIntList() || value.isDoubleList() || value.isBoolList()) return false;
  const auto kind = value.toList().elementType();
  return kind->isSubtypeOf(*c10::TensorType::get()) || kind->kind() == c10::TypeKind::OptionalType;
}

// Numbers for which a lowering leaves work out.
bool simplifies(const at::Scalar& number) {
  if (number.isComplex()) return true;
  const double value = number.toDouble();
  return value == 0.0 || value == 1.0 || value == -1.0 || value == 2.0;
}

// The number is computed with in at least single precision, as LibTorch's kernels do it.
torch::ScalarType number_dtype(const at::Scalar& number, torch::ScalarType dtype) {
  if (dtype == torch::kDouble) return dtype;
  if (c10::isIntegralType(dtype, /*includeBool=*/true) && number.isIntegral(/*includeBool=*/true)) return torch::kLong;
  return torch::kFloat;
}

// Returns a host's tensor as numbers that any kernel of LibTorch would take beside tensors of a device.
bool is_number(const torch::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.dim() == 0;
}

c10::IValue to_meta(const c10::IValue& value) {
  if (is_tensor(value)) return meta_of(value.toTensor());
  if (value.isDevice()) return c10::Device(c10::DeviceType::Meta);
  if (value.isGenerator()) return {};
  if (!is_tensor_list(value)) return value;
  const bool optional = value.toList().elementType()->kind() == c10::TypeKind::OptionalType;
  c10::List<torch::Tensor> tensors;
  c10::List<c10::optional<torch::Tensor>> optionals;
  for (const c10::IValue& element : value.toListRef()) {
    const torch::Tensor meta = is_tensor(element) ? meta_of(element.toTensor()) : torch::Tensor();
    if (!optional) tensors.push_back(meta);
    if (optional) optionals.push_back(meta.defined() ? c10::make_optional(meta) : c10::nullopt);
  }
  return optional ? c10::IValue(optionals) : c10::IValue(tensors);
}

}  // namespace

std::string name_of(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
  return full.rfind("aten::", 0) == 0 ? full.substr(6) : full;
}

torch::Tensor meta_of(const torch::Tensor& tensor) {
  torch::Tensor meta = at::empty_strided(tensor.sizes(), tensor.strides(),
                                         at::TensorOptions().dtype(tensor.scalar_type()).device(c10::DeviceType::Meta));
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  return meta;
}

bool becomes_number(const at::Scalar& number) {
  return !simplifies(number);
}

Argument lifted(const at::Scalar& number, torch::ScalarType dtype) {
  if (simplifies(number)) return c10::IValue(number);
  return make_scalar(number, number_dtype(number, dtype));
}

Call::Call(const c10::OperatorHandle& op, torch::jit::Stack& stack) : name_(name_of(op)) {
  const std::size_t n = op.schema().arguments().size();
  arguments_.assign(std::make_move_iterator(stack.end() - static_cast<std::ptrdiff_t>(n)),
                    std::make_move_iterator(stack.end()));
  stack.erase(stack.end() - static_cast<std::ptrdiff_t>(n), stack.end());
  for (const c10::IValue& argument : arguments_) note_device(argument);
  for (const c10::IValue& argument : arguments_) {
    if (recording_ == nullptr && argument.isDevice()) recording_ = &recording_of(argument.toDevice());
  }
  if (recording_ == nullptr) fail<Internal>("[record] ", name_, " came without a tensor of a device of the type XLA");
}

void Call::note_device(const c10::IValue& argument) {
  if (is_tensor_list(argument)) {
    for (const c10::IValue& element : argument.toListRef()) note_device(element);
  }
  if (!is_tensor(argument) || !is_recorded(argument.toTensor())) return;
  Recording& own = cell_of(argument.toTensor()).recording();
  if (recording_ != nullptr && recording_ != &own) {
    fail<InvalidArgument>("[record] ", name_, " got tensors of xla:", recording_->device(), " and xla:", own.device(),
                          ", wanted all on one device");
  }
  recording_ = &own;
}

torch::jit::Stack Call::meta_arguments() const {
  torch::jit::Stack meta;
  for (const c10::IValue& argument : arguments_) meta.push_back(to_meta(argument));
  return meta;
}

torch::ScalarType Call::promoted(const torch::jit::Stack& meta) const {
  at::native::ResultTypeState state = {};
  for (const c10::IValue& value : meta) {
    if (is_tensor(value)) state = at::native::update_result_type_state(value.toTensor(), state);
    if (value.isScalar() && !value.isBool()) {
      torch::Tensor number =
          at::empty({}, at::TensorOptions().dtype(value.toScalar().type()).device(c10::DeviceType::Meta));
      number.unsafeGetTensorImpl()->set_wrapped_number(true);
      state = at::native::update_result_type_state(number, state);
    }
  }
  return at::native::result_type(state);
}

Argument Call::tensor_argument(const torch::Tensor& tensor, torch::ScalarType dtype) const {
  if (is_recorded(tensor)) return value_of(tensor);
  if (is_number(tensor)) return lifted(tensor.item(), dtype);
  const bool indexes = name_.rfind("index", 0) == 0 || name_.rfind("_index", 0) == 0;
  if (!tensor.device().is_cpu() || !indexes) {
    fail<InvalidArgument>("[record] ", name_, " got a tensor of the device ", tensor.device(),
                          " beside one of xla:", recording_->device(), ", wanted all on one device");
  }
  return value_of(tensor.to(torch::Device(c10::DeviceType::XLA, static_cast<c10::DeviceIndex>(recording_->device()))));
}

std::vector<Argument> Call::graph_arguments(const OperationInfo& info, torch::ScalarType dtype) const {
  std::vector<Argument> list;
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const c10::IValue& value = arguments_[i];
    if (is_tensor(value)) {
      list.push_back(tensor_argument(value.toTensor(), dtype));
    } else if (value.isTensor() || value.isNone() || value.isDevice() || value.isGenerator()) {
      list.emplace_back();
    } else if (is_tensor_list(value)) {
      std::vector<Value> values;
      for (const c10::IValue& element : value.toListRef()) {
        const bool there = is_tensor(element);
        const Argument one = there ? tensor_argument(element.toTensor(), dtype) : Argument(Value());
        const auto* own = std::get_if<Value>(&one);
        values.push_back(own != nullptr ? *own : make_scalar(element.toTensor().item(), dtype));
      }
      list.emplace_back(std::move(values));
    } else if ((info.lifted >> i & 1U) != 0 && value.isScalar()) {
      list.push_back(lifted(value.toScalar(), dtype));
    } else {
      list.emplace_back(value);
    }
  }
  return list;
}

}  // namespace cohort::record
