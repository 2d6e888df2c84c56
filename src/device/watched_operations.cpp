// LibTorch tells a thread's observers when an operation begins and ends (at::RecordFunction). Backward's threads
// inherit the observers, as they do what ThreadLocalDebugInfo has for them. Compiled as LibTorch is (CMakeLists.txt).
#include "device/watched_operations.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/fail.h"

namespace cohort {

namespace {

constexpr auto kWatched = c10::DebugInfoKind::PRODUCER_INFO;

// Calls visit with each tensor of a value that is defined.
template <typename Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const torch::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined()) visit(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (const auto& tensor : value.toOptionalTensorVector()) {
      if (tensor && tensor->defined()) visit(*tensor);
    }
  }
}

}  // namespace

struct OperationObserver {
  static WatchedOperations* of_thread() {
    return dynamic_cast<WatchedOperations*>(c10::ThreadLocalDebugInfo::get(kWatched));
  }
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& operation) {
    if (WatchedOperations* const watched = of_thread()) watched->note_begin(operation);
    return nullptr;
  }
  static void end(const at::RecordFunction& operation, at::ObserverContext* /*context*/) {
    if (WatchedOperations* const watched = of_thread()) watched->note_end(operation);
  }
};

void WatchedOperations::note_begin(const at::RecordFunction& operation) {
  const std::lock_guard lock(mutex_);
  for (const c10::IValue& input : operation.inputs()) {
    each_tensor(input, [&](const torch::Tensor& tensor) { note_given(tensor); });
  }
  if (std::string_view(operation.name()) == "aten::copy_") note_copy(operation.inputs());
}

void WatchedOperations::note_end(const at::RecordFunction& operation) {
  const std::lock_guard lock(mutex_);
  // The last one to hear of an error is the operation that was called.
  if (std::uncaught_exceptions() > 0) failed_ = operation.name();
  for (const c10::IValue& output : operation.outputs()) {
    each_tensor(output, [&](const torch::Tensor& tensor) {
      if (!is_here(tensor)) return;
      ++count_;
      const auto* storage = tensor.storage().unsafeGetStorageImpl();
      if (!outside_.contains(storage)) made_.try_emplace(storage, tensor.storage().getWeakStorageImpl());
    });
  }
}

int64_t WatchedOperations::take_count() {
  const std::lock_guard lock(mutex_);
  return std::exchange(count_, 0);
}

void WatchedOperations::note_kernel(std::span<const torch::Tensor> tensors) {
  const std::lock_guard lock(mutex_);
  for (const torch::Tensor& tensor : tensors) note_given(tensor);
}

std::string WatchedOperations::failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

std::string WatchedOperations::copied() const {
  const std::lock_guard lock(mutex_);
  return copied_;
}

std::vector<WatchedOperations::WeakStorage> WatchedOperations::take_needed() {
  const std::lock_guard lock(mutex_);
  std::vector<WeakStorage> needed;
  for (const auto& [storage, held] : outside_) needed.push_back(held.getWeakStorageImpl());
  for (const torch::Tensor& leaf : leaves_) {
    const torch::Tensor& gradient = leaf.grad();
    if (!gradient.defined() || !gradient.has_storage()) continue;
    if (made_.contains(gradient.storage().unsafeGetStorageImpl())) {
      needed.push_back(gradient.storage().getWeakStorageImpl());
    }
  }
  outside_.clear();
  leaves_.clear();
  made_.clear();
  return needed;
}

void WatchedOperations::note_given(const torch::Tensor& tensor) {
  if (!is_here(tensor)) return;
  ++count_;  // an operation on lists in place returns nothing
  const auto* storage = tensor.storage().unsafeGetStorageImpl();
  if (!made_.contains(storage)) outside_.try_emplace(storage, tensor.storage());
  if (!tensor.requires_grad() || !tensor.is_leaf()) return;
  const auto same = [&](const torch::Tensor& leaf) { return leaf.is_same(tensor); };
  if (std::none_of(leaves_.begin(), leaves_.end(), same)) leaves_.push_back(tensor);
}

void WatchedOperations::note_copy(c10::ArrayRef<const c10::IValue> inputs) {
  if (inputs.size() < 2 || !inputs[0].isTensor() || !inputs[1].isTensor()) return;
  const torch::Tensor& to = inputs[0].toTensor();
  const torch::Tensor& from = inputs[1].toTensor();
  if (!to.defined() || !from.defined() || to.numel() == 0) return;
  const bool arrives = to.device() == device_ && from.is_cpu();
  const bool leaves = from.device() == device_ && to.is_cpu();
  if (arrives || leaves)
    copied_ = c10::str("a tensor of shape ", from.sizes(), " from ", from.device(), " to ", to.device());
}

OperationWatch::OperationWatch(const std::shared_ptr<WatchedOperations>& operations)
    : operations_(kWatched, operations),
      handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&OperationObserver::begin, &OperationObserver::end)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}))) {}

OperationWatch::~OperationWatch() {
  at::removeCallback(handle_);
}

}  // namespace cohort
