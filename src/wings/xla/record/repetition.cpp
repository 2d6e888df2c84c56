#include "wings/xla/record/repetition.h"

#include <utility>

#include "wings/xla/record/call.h"
#include "wings/xla/record/cell.h"

namespace cohort::record {

namespace {

thread_local Repetition* repetition_here = nullptr;

bool is_host_number(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().device().is_cpu();
}

at::Scalar number_of(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor().item() : value.toScalar();
}

const void* identity(const c10::IValue& tensor) {
  return tensor.toTensor().unsafeGetTensorImpl();
}

}  // namespace

Repetition::Scope::Scope(Repetition& repetition) {
  repetition_here = &repetition;
}
Repetition::Scope::~Scope() {
  repetition_here = nullptr;
}

Repetition* Repetition::here() {
  return repetition_here;
}

void Repetition::begin() {
  steps_.clear();
  noted_ = repeats_ = false;
  is_noting_ = true;
}

void Repetition::finish() {
  noted_ = std::exchange(is_noting_, false);
  if (!noted_) return steps_.clear();
  // Nobody waits for their values, which were of this one time.
  for (const Step& step : steps_) {
    for (const c10::IValue& result : step.results) {
      if (!result.isTensor() || !is_recorded(result.toTensor())) continue;
      Cell& cell = cell_of(result.toTensor());
      if (cell.value().node->is_leaf()) continue;
      const Value nothing = make_data(cell.value().type(), nullptr);
      cell.set_state(nothing, cell.root(), nothing.node);
    }
  }
}

void Repetition::repeat() {
  repeats_ = true;
  next_ = 0;
  numbers_.clear();
}

Repetition::Kind Repetition::kind_of(const c10::IValue& argument, bool is_lifted) {
  if (argument.isDevice() || argument.isGenerator()) return Kind::kIgnored;
  if (is_host_number(argument) || (is_lifted && argument.isScalar())) {
    return becomes_number(number_of(argument)) ? Kind::kNumber : Kind::kValue;
  }
  if (argument.isTensor()) return Kind::kTensor;
  return argument.isTensorList() ? Kind::kTensors : Kind::kValue;
}

bool Repetition::is_same(Kind kind, const c10::IValue& noted, const c10::IValue& came) {
  if (kind == Kind::kIgnored) return true;
  if (kind == Kind::kNumber) {
    return (came.isScalar() || is_host_number(came)) && noted.tagKind() == came.tagKind() &&
           becomes_number(number_of(came));
  }
  if (noted.tagKind() != came.tagKind()) return false;
  if (kind == Kind::kTensor) return identity(noted) == identity(came);
  if (kind != Kind::kTensors) {
    return is_host_number(noted) ? number_of(noted).toDouble() == number_of(came).toDouble() : noted == came;
  }
  const auto before = noted.toListRef(), now = came.toListRef();
  if (before.size() != now.size()) return false;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (identity(before[i]) != identity(now[i])) return false;
  }
  return true;
}

bool Repetition::takes(const Step& step, const c10::IValue* arguments, std::vector<at::Scalar>& numbers) const {
  for (std::size_t i = 0; i < step.arguments.size(); ++i) {
    if (!is_same(step.kinds[i], step.arguments[i], arguments[i])) return false;
    if (step.kinds[i] == Kind::kNumber) numbers.push_back(number_of(arguments[i]));
  }
  return true;
}

bool Repetition::take(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (!repeats_) return false;
  const Step* const step = next_ < steps_.size() ? &steps_[next_] : nullptr;
  const std::size_t count = step == nullptr ? 0 : step->arguments.size();
  if (step == nullptr || !step->op || &step->op->operator_name() != &op.operator_name() ||
      !takes(*step, stack.data() + (stack.size() - count), numbers_)) {
    spoil();
    return false;
  }
  ++next_;
  stack.erase(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  stack.insert(stack.end(), step->results.begin(), step->results.end());
  return true;
}

void Repetition::note(const c10::OperatorHandle& op, const OperationInfo* info,
                      const std::vector<c10::IValue>& arguments, const torch::jit::Stack& stack) {
  if (!is_noting_) return;
  Step step{.op = op, .kinds = {}, .arguments = arguments, .results = {}};
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    step.kinds.push_back(kind_of(arguments[i], info != nullptr && (info->lifted >> i & 1U) != 0));
  }
  const auto results = static_cast<std::ptrdiff_t>(op.schema().returns().size());
  step.results.assign(stack.end() - results, stack.end());
  for (const c10::IValue& result : step.results) {
    if (!result.isTensor()) return spoil();
  }
  steps_.push_back(std::move(step));
}

torch::Tensor Repetition::take_parameter(const TensorType& type, torch::Device device) {
  if (!repeats_) return {};
  if (next_ < steps_.size() && !steps_[next_].op) {
    torch::Tensor noted = steps_[next_].results.front().toTensor();
    if (noted.device() == device && noted.scalar_type() == type.dtype &&
        noted.sizes() == c10::IntArrayRef(type.sizes)) {
      ++next_;
      return noted;
    }
  }
  spoil();
  return {};
}

void Repetition::note_parameter(const torch::Tensor& parameter) {
  if (is_noting_) steps_.push_back({.op = {}, .kinds = {}, .arguments = {}, .results = {parameter}});
}

}  // namespace cohort::record
