// How an operation becomes a node. The shapes of its results come from LibTorch's own kernels for the device Meta, or
// from a shape function where there is none; a form that writes in place is recorded as the functional one, whose
// result becomes the tensor's value.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/CPUFallback.h>

#include "base/fail.h"
#include "base/log.h"
#include "wings/function/base/meta_shapes.h"
#include "wings/xla/record/call.h"
#include "wings/xla/record/cell.h"
#include "wings/xla/record/repetition.h"

namespace cohort::record {

namespace {

// Returns "add.Tensor" for "add_.Tensor" and itself for a name without an underscore at its end.
std::string functional_name(const std::string& name) {
  const std::size_t dot = std::min(name.find('.'), name.size());
  if (dot == 0 || name[dot - 1] != '_') return name;
  return name.substr(0, dot - 1) + name.substr(dot);
}

const OperationInfo& info_of(const std::string& name) {
  if (const OperationInfo* info = find_operation(functional_name(name))) return *info;
  for (const auto rows : all_operations()) {
    for (const OperationInfo& row : rows) {
      if (row.out_name != nullptr && name == row.out_name) return row;
    }
  }
  fail<Internal>("[record] ", name, " was registered without a row in the table of operations");
}

// Returns the argument that the operation writes, or -1.
int written_argument(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite()) return static_cast<int>(i);
  }
  return -1;
}

void collect_tensors(const c10::IValue& value, std::vector<torch::Tensor>& out) {
  if (value.isTensor()) {
    out.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const torch::Tensor& tensor : value.toTensorVector()) out.push_back(tensor);
  }
}

std::vector<torch::Tensor> infer(const c10::OperatorHandle& op, const OperationInfo& info,
                                 const torch::jit::Stack& meta) {
  if (const MetaShape shape = find_meta_shape(info.name)) return shape(meta);
  torch::jit::Stack stack = meta;
  const at::AutoDispatchBelowADInplaceOrView below;
  op.callBoxed(&stack);
  std::vector<torch::Tensor> results;
  for (const c10::IValue& value : stack) collect_tensors(value, results);
  return results;
}

TensorType type_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return {torch::ScalarType::Undefined, {}};
  return {tensor.scalar_type(), tensor.sizes().vec()};
}

void push_results(const c10::FunctionSchema& schema, const std::vector<torch::Tensor>& results,
                  torch::jit::Stack* stack) {
  std::size_t next = 0;
  for (const c10::Argument& returned : schema.returns()) {
    if (returned.type()->kind() != c10::TypeKind::ListType) {
      stack->emplace_back(results.at(next++));
      continue;
    }
    c10::List<torch::Tensor> list;
    while (next < results.size()) list.push_back(results[next++]);
    stack->emplace_back(list);
  }
}

// Returns whether an operation takes elements by a mask, of which only the values say how many elements it names.
bool takes_by_mask(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (name_of(op) != "index.Tensor" || !stack.back().isList()) return false;
  for (const c10::IValue& index : stack.back().toListRef()) {
    if (!index.isTensor() || !index.toTensor().defined()) continue;
    const torch::ScalarType dtype = index.toTensor().scalar_type();
    if (dtype == torch::kBool || dtype == torch::kByte) return true;
  }
  return false;
}

// LibTorch's fallback takes tensors to the host, and lists of them, but not lists in which some are missing.
void take_indices_to_host(c10::IValue& argument) {
  if (!argument.isList() || argument.isTensorList() || argument.toListRef().empty()) return;
  c10::List<c10::optional<torch::Tensor>> own;
  for (const c10::IValue& each : argument.toListRef()) {
    if (!each.isTensor() && !each.isNone()) return;
    own.push_back(each.isTensor() && each.toTensor().defined() ? c10::make_optional(each.toTensor().cpu())
                                                               : c10::nullopt);
  }
  argument = own;
}

// Lets the operation run on the host, or says that it cannot be recorded.
void refuse(const c10::OperatorHandle& op, torch::jit::Stack* stack, std::string_view why) {
  const std::string name = name_of(op);
  const auto n = static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  if (soft_placement() && runner() != nullptr) {
    warn_once(c10::str("[record] ", name, " has no lowering", why,
                       " and runs on the host, each time with copies there and back"));
    for (auto it = stack->end() - n; it != stack->end(); ++it) take_indices_to_host(*it);
    at::native::cpu_fallback(op, stack);
    return;
  }
  std::string layer;
  for (auto it = stack->end() - n; it != stack->end(); ++it) {
    if (!it->isTensor() || !is_recorded(it->toTensor()) || !layer.empty()) continue;
    layer = layer_of(name, {value_of(it->toTensor())});
  }
  refuse_operation(
      name, layer, c10::str("has no lowering to StableHLO", why),
      runner() == nullptr
          ? "write it with operations that have one"
          : "write it with operations that have one, or let it run on the host by set_soft_device_placement(true)");
}

}  // namespace

void record_call(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  Repetition* const repetition = Repetition::here();
  if (repetition != nullptr && repetition->take(op, *stack)) return;
  if (takes_by_mask(op, *stack)) {
    return refuse(op, stack,
                  " for masks, whose values alone say how many elements they name (where() has a static shape)");
  }
  const Call call(op, *stack);
  const std::string name = name_of(op);
  const OperationInfo& info = info_of(name);
  const torch::jit::Stack meta = call.meta_arguments();
  const int written = written_argument(op.schema());
  std::vector<torch::Tensor> results;
  if (written >= 0) {
    results.push_back(meta[static_cast<std::size_t>(written)].toTensor());
  } else {
    results = infer(op, info, meta);
  }
  auto node = std::make_shared<Node>();
  node->op = std::string("aten::") + info.name;
  for (const torch::Tensor& result : results) node->outputs.push_back(type_of(result));
  if (info.promotes) node->common = call.promoted(meta);
  node->arguments = call.graph_arguments(info, info.promotes ? node->common : node->outputs.at(0).dtype);
  const bool takes_out = written > 0;
  if (takes_out) node->arguments.pop_back();
  node->layer = layer_of(node->op, node->arguments);
  if (written >= 0) {
    const torch::Tensor target = call.arguments()[static_cast<std::size_t>(written)].toTensor();
    assign(target, {node, 0});
    stack->emplace_back(target);
    if (repetition != nullptr) repetition->note(op, &info, call.arguments(), *stack);
    return;
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined()) continue;
    results[i] = make_tensor({node, static_cast<int>(i)}, strided_of(results[i]), call.recording());
  }
  push_results(op.schema(), results, stack);
  if (repetition != nullptr) repetition->note(op, &info, call.arguments(), *stack);
}

void record_view(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  Repetition* const repetition = Repetition::here();
  if (repetition != nullptr && repetition->take(op, *stack)) return;
  const Call call(op, *stack);
  const torch::Tensor self = call.arguments().at(0).toTensor();
  torch::jit::Stack meta = call.meta_arguments();
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    op.callBoxed(&meta);
  }
  std::vector<torch::Tensor> results;
  for (const c10::IValue& value : meta) collect_tensors(value, results);
  for (torch::Tensor& result : results) {
    Strided view = strided_of(result);
    view.offset += self.storage_offset();
    result = make_view(self, view);
  }
  push_results(op.schema(), results, stack);
  if (repetition != nullptr) repetition->note(op, nullptr, call.arguments(), *stack);
}

void refuse_call(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  // LibTorch has some operations made of others for every back end but those it knows to rewrite programs, XLA's among
  // them. They are found under the key of a back end that it knows nothing of.
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional)) {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), stack);
    return;
  }
  refuse(op, stack, "");
}

}  // namespace cohort::record
