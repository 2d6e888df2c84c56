#include "wings/pipeline/strategy/absent_operations.h"

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/fail.h"
#include "strategy/absent.h"
#include "strategy/context.h"
#include "strategy/replica_scope.h"
#include "wings/function/base/meta_shapes.h"

namespace cohort {

namespace {

using Arguments = std::vector<c10::IValue>;

torch::Tensor to_meta(const torch::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           at::TensorOptions().dtype(tensor.dtype()).device(c10::DeviceType::Meta));
}

// Calls fn with each tensor of a value.
template <typename Fn>
void each_tensor(const c10::IValue& value, const Fn& fn) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) fn(value.toTensor());
    return;
  }
  if (!value.isList()) return;
  for (const c10::IValue& each : value.toListRef()) each_tensor(each, fn);
}

// Returns a value with other tensors in it.
template <typename Fn>
c10::IValue with_tensors(const c10::IValue& value, const Fn& fn) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(fn(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<torch::Tensor> list;
    for (const torch::Tensor& each : value.toTensorVector()) list.push_back(each.defined() ? fn(each) : each);
    return list;
  }
  if (!value.isList()) return value;
  c10::impl::GenericList list(value.toList().elementType());
  for (const c10::IValue& each : value.toListRef()) list.push_back(with_tensors(each, fn));
  return list;
}

// One call of an operation, whose arguments are on the stack.
class CalledOperation {
 public:
  CalledOperation(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : op_(op), stack_(stack), count_(op.schema().arguments().size()) {}

  template <typename Fn>
  void each_argument(const Fn& fn) const {
    for (std::size_t i = 0; i < count_; ++i) each_tensor(argument(i), fn);
  }
  // Calls fn with each tensor that it writes to, a batch norm's statistics among them.
  template <typename Fn>
  void each_changed(const Fn& fn) const;
  // Operations that look at a tensor without its elements.
  bool only_looks() const {
    const std::string& name = op_.schema().name();
    return name == "aten::detach" || name == "aten::alias" || name == "aten::_has_compatible_shallow_copy_type";
  }

  // Returns whether autocast has something to do with it, which comes back here with the arguments that it has cast.
  bool is_cast() const {
    return !c10::impl::tls_is_dispatch_key_excluded(autocast_key()) && op_.hasKernelForDispatchKey(autocast_key());
  }

  void call() {
    const c10::impl::ExcludeDispatchKeyGuard once(kAbsentKey);
    op_.callBoxed(&stack_);
  }
  void cast() { op_.callBoxedForDispatchKey(autocast_key(), stack_); }
  void call_without_values(ReplicaScope& call, bool learns);
  void call_counted(ReplicaScope& call);
  [[noreturn]] void refuse(const ReplicaScope* call) const;

 private:
  const c10::IValue& argument(std::size_t i) const { return stack_[stack_.size() - count_ + i]; }
  bool writes(std::size_t i) const {
    const auto* alias = op_.schema().arguments()[i].alias_info();
    return alias != nullptr && alias->isWrite();
  }
  c10::DispatchKey autocast_key() const {
    return device().is_cpu() ? c10::DispatchKey::AutocastCPU : c10::DispatchKey::AutocastCUDA;
  }
  torch::Device device() const;
  Arguments on_meta() const;
  bool finish_written(ReplicaScope& call);
  [[noreturn]] void refuse_elsewhere(const std::string& what, const std::string& remedy) const;
  std::vector<c10::IValue> results() const;

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  std::size_t count_;
};

// In the schemas of these operations statistics are no arguments that change.
template <typename Fn>
void CalledOperation::each_changed(const Fn& fn) const {
  for (std::size_t i = 0; i < count_; ++i) {
    if (writes(i)) each_tensor(argument(i), fn);
  }
  const std::string& name = op_.schema().name();
  if (name.find("batch_norm") == std::string::npos && name.find("instance_norm") == std::string::npos) return;
  constexpr std::size_t kMean = 3, kVariance = 4, kLearns = 5;
  if (count_ <= kLearns || !argument(kLearns).isBool() || !argument(kLearns).toBool()) return;
  for (const std::size_t i : {kMean, kVariance}) each_tensor(argument(i), fn);
}

// What is written stays as it is, but for its dimensions: its values are another process's, also where this one had
// some.
void CalledOperation::refuse_elsewhere(const std::string& what, const std::string& remedy) const {
  fail<Unimplemented>("[pipeline] ", op_.schema().name(), " ", what,
                      " in a chunk of the model that another process of the pipeline computes; ", remedy);
}

bool CalledOperation::finish_written(ReplicaScope& call) {
  constexpr std::array kTurns = {"squeeze_", "unsqueeze_", "t_", "transpose_", "swapaxes_", "swapdims_"};
  constexpr std::array kChangesSizes = {"resize_", "resize_as_", "set_", "as_strided_"};
  std::vector<c10::IValue> written;
  for (std::size_t i = 0; i < count_; ++i) {
    if (writes(i)) written.push_back(argument(i));
  }
  if (written.empty()) return false;
  const std::string_view full(op_.schema().name());
  const std::string_view name = full.substr(full.rfind(':') + 1);
  const bool turns = std::find(kTurns.begin(), kTurns.end(), name) != kTurns.end();
  if (turns && is_absent(written.front().toTensor())) {
    torch::Tensor tensor = written.front().toTensor();
    tensor.set_data(make_absent_tensor(results().front().toTensor(), tensor.device(), /*requires_grad=*/false));
  } else if (turns || std::find(kChangesSizes.begin(), kChangesSizes.end(), name) != kChangesSizes.end()) {
    refuse_elsewhere("changes the sizes of a tensor", "use the form that returns a new tensor");
  }
  for (const c10::IValue& value : written) {
    each_tensor(value, [&](const torch::Tensor& tensor) {
      if (!is_absent(tensor)) call.note_written(tensor);
    });
  }
  torch::jit::drop(stack_, count_);
  for (std::size_t i = 0; i < std::min(written.size(), op_.schema().returns().size()); ++i)
    stack_.push_back(written[i]);
  return true;
}

// Returns where the results are: on the device that is asked for, or else on a card if one of the tensors is.
torch::Device CalledOperation::device() const {
  torch::Device device = torch::kCPU;
  each_argument([&](const torch::Tensor& tensor) {
    if (!tensor.is_cpu()) device = tensor.device();
  });
  for (std::size_t i = 0; i < count_; ++i) {
    if (argument(i).isDevice()) device = argument(i).toDevice();
  }
  return device;
}

Arguments CalledOperation::on_meta() const {
  Arguments meta;
  for (std::size_t i = 0; i < count_; ++i) {
    const c10::IValue& value = argument(i);
    meta.push_back(value.isDevice() ? c10::IValue(torch::Device(c10::DeviceType::Meta)) : with_tensors(value, to_meta));
  }
  return meta;
}

// Returns the results as tensors of the device Meta: by LibTorch's kernels for it, or by one of ours where
// there is none.
std::vector<c10::IValue> CalledOperation::results() const {
  const c10::impl::ExcludeDispatchKeyGuard once(kAbsentKey);
  const std::string& full = op_.schema().name();
  const std::string short_name = full.substr(full.rfind(':') + 1);
  if (short_name == "native_batch_norm") {
    const Arguments meta = on_meta();
    const torch::Tensor x = meta[0].toTensor();
    const torch::Tensor statistic = at::empty({meta[5].toBool() ? x.size(1) : 0}, x.options());
    return {at::empty_like(x), statistic, statistic};
  }
  if (short_name == "native_group_norm") {
    const Arguments meta = on_meta();
    const torch::Tensor x = meta[0].toTensor();
    const torch::Tensor statistic = at::empty({meta[3].toInt(), meta[6].toInt()}, x.options());
    return {at::empty_like(x), statistic, statistic};
  }
  const std::string overload = op_.schema().overload_name();
  if (const MetaShape shape = find_meta_shape(overload.empty() ? short_name : short_name + "." + overload)) {
    std::vector<c10::IValue> list;
    for (const torch::Tensor& each : shape(on_meta())) list.emplace_back(each);
    return list;
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  torch::jit::Stack stack = on_meta();
  op_.callBoxed(&stack);
  return stack;
}

void CalledOperation::call_without_values(ReplicaScope& call, bool learns) {
  if (finish_written(call)) return;
  if (op_.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    return op_.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, stack_);
  }
  std::vector<c10::IValue> meta;
  try {
    meta = results();
  } catch (const c10::Error& error) {
    std::string sizes;
    each_argument([&](const torch::Tensor& tensor) { sizes += c10::str(sizes.empty() ? "" : ", ", tensor.sizes()); });
    const std::string why = error.what_without_backtrace();
    refuse_elsewhere(c10::str("of ", sizes, " needs values"),
                     "return tensors from run() and read them there (" + why.substr(0, why.find(". ")) + ")");
  }
  const torch::Device device = this->device();
  torch::jit::drop(stack_, count_);
  for (const c10::IValue& each : meta) {
    stack_.push_back(
        with_tensors(each, [&](const torch::Tensor& tensor) { return make_absent_tensor(tensor, device, learns); }));
  }
}

void CalledOperation::call_counted(ReplicaScope& call) {
  if (op_.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    return op_.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, stack_);
  }
  const Arguments arguments(stack_.end() - static_cast<std::ptrdiff_t>(count_), stack_.end());
  this->call();
  if (!op_.schema().returns().empty()) {
    const c10::IValue& first = stack_[stack_.size() - op_.schema().returns().size()];
    if (first.isTensor()) call.count(op_.schema().name(), arguments, first.toTensor());
  }
}

void CalledOperation::refuse(const ReplicaScope* call) const {
  torch::Tensor absent;
  each_argument([&](const torch::Tensor& tensor) {
    if (is_absent(tensor) || (call != nullptr && call->lacks(tensor))) absent = tensor;
  });
  fail<FailedPrecondition>("[pipeline] ", op_.schema().name(), " was given a tensor of ", absent.sizes(), " that ",
                           "another process of the pipeline has: ",
                           call != nullptr ? "give all that later layers need to next_stage(), and use the parameters "
                                             "that the stage used in the first step"
                                           : "outside of run() parameters are read by state() or weights(), and what "
                                             "run() returned by reduce() or gather()");
}

void call_elsewhere(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  CalledOperation operation(op, *stack);
  ReplicaScope* const call = thread_context().replica_scope;
  if (call != nullptr && call->counts()) return operation.call_counted(*call);
  const bool elsewhere = call != nullptr && call->elsewhere();
  bool absent = false;
  bool learns = false;
  operation.each_argument([&](const torch::Tensor& tensor) {
    absent = absent || is_absent(tensor) || (call != nullptr && call->lacks(tensor));
    learns = learns || tensor.requires_grad();
    if (call != nullptr && !elsewhere) call->note_use(tensor);
  });
  if (call != nullptr && !elsewhere) {
    operation.each_changed([&](const torch::Tensor& tensor) { call->note_change(tensor); });
  }
  if (operation.only_looks() || (!absent && !(elsewhere && learns))) return operation.call();
  if (!elsewhere) operation.refuse(call);
  if (operation.is_cast()) return operation.cast();
  operation.call_without_values(*call, learns && at::GradMode::is_enabled());
}

}  // namespace

void hand_over_operations(bool on, const InputWatch* watch) {
  watch_inputs(watch);
  c10::impl::tls_set_dispatch_key_included(kAbsentKey, on);
}

void install_absent_kernel() {
  // Kept although nobody reads it: it says that the library is no leak.
  [[gnu::used]] static const torch::Library* const library = [] {
    auto made = std::make_unique<torch::Library>(torch::Library::IMPL, "_", c10::make_optional(kAbsentKey), __FILE__,
                                                 static_cast<uint32_t>(__LINE__));
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&call_elsewhere>());
    return made.release();
  }();
}

}  // namespace cohort
