// LibTorch tells a thread's observers when an operation begins and ends (at::RecordFunction). Backward's threads
// inherit the observers, as they do what ThreadLocalDebugInfo has for them. Compiled as LibTorch is (CMakeLists.txt).
#include "wings/function/device/watched_operations.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/fail.h"

namespace cohort {

namespace {

const auto kWatched = c10::DebugInfoKind::PRODUCER_INFO;  // a constant expression before LibTorch 2.15 alone

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
  struct Context final : at::ObserverContext {
    explicit Context(WatchedOperations::Begun now) : begun(std::move(now)) {}
    WatchedOperations::Begun begun;
  };
  static WatchedOperations* of_thread() {
    return dynamic_cast<WatchedOperations*>(c10::ThreadLocalDebugInfo::get(kWatched));
  }
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& operation) {
    WatchedOperations* const watched = of_thread();
    return watched == nullptr ? nullptr : std::make_unique<Context>(watched->note_begin(operation));
  }
  static void end(const at::RecordFunction& operation, at::ObserverContext* context) {
    WatchedOperations* const watched = of_thread();
    if (watched != nullptr && context != nullptr) {
      watched->note_end(operation, static_cast<const Context*>(context)->begun);
    }
  }
};

WatchedOperations::Begun WatchedOperations::note_begin(const at::RecordFunction& operation) {
  const std::lock_guard lock(mutex_);
  Within& within = within_[std::this_thread::get_id()];
  Begun begun;
  std::vector<torch::Tensor> of_host;
  const std::string_view name = operation.name();
  begun.is_work = name != "aten::detach" && name != "detach";  // the second one is a part of the first
  const int64_t count = count_;
  for (const c10::IValue& input : operation.inputs()) {
    each_tensor(input, [&](const torch::Tensor& tensor) {
      note_given(tensor, within);
      begun.is_of_device = begun.is_of_device || is_here(tensor);
      const bool is_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
      if (tensor.is_cpu() && !is_here(tensor) && tensor.has_storage() && !is_number) of_host.push_back(tensor);
    });
  }
  if (!begun.is_work) count_ = count;
  if (name == "aten::copy_") note_copy(operation.inputs());
  begun.is_part = within.depth++ > 0;
  if (begun.is_part) return begun;
  for (const torch::Tensor& tensor : of_host) {
    if (!begun.is_of_device || tensor.dim() == 0) begun.sources.merge(sources_of(tensor));
  }
  if (begun.is_of_device) {
    for (const std::size_t source : std::exchange(begun.sources, {})) host_[source].is_taken = true;
  }
  return begun;
}

WatchedOperations::Numbers WatchedOperations::sources_of(const torch::Tensor& of_host) {
  const auto made = made_of_host_.find(of_host.storage().unsafeGetStorageImpl());
  if (made != made_of_host_.end()) return made->second.sources;
  const auto known =
      std::find_if(host_.begin(), host_.end(), [&](const OfHost& each) { return each.tensor.is_same(of_host); });
  const auto place = static_cast<std::size_t>(known - host_.begin());
  if (known == host_.end()) {
    host_.push_back({.tensor = of_host, .version = of_host.is_inference() ? 0 : of_host._version()});
  }
  return {place};
}

void WatchedOperations::note_end(const at::RecordFunction& operation, const Begun& begun) {
  const std::lock_guard lock(mutex_);
  Within& within = within_[std::this_thread::get_id()];
  --within.depth;
  // The last one to hear of an error is the operation that was called.
  if (std::uncaught_exceptions() > 0) failed_ = operation.name();
  for (const c10::IValue& output : operation.outputs()) {
    each_tensor(output, [&](const torch::Tensor& tensor) {
      if (!is_here(tensor)) {
        if (!begun.is_part) note_made_on_host(tensor, begun.sources);
        return;
      }
      if (begun.is_work) ++count_;
      const auto* storage = tensor.storage().unsafeGetStorageImpl();
      if (!outside_.contains(storage)) made_.try_emplace(storage, tensor.storage().getWeakStorageImpl());
    });
  }
  if (!begun.is_part) note_given_within(within);
}

// Decides, when an operation has ended, about what its parts were given: it was made within and is a result or gone, or
// it is from before.
void WatchedOperations::note_given_within(Within& within) {
  for (const GivenWithin& each : std::exchange(within.given, {})) {
    auto storage = each.storage.lock();
    if (!storage || made_.contains(storage.get())) continue;
    if (auto tensor = each.tensor.lock()) handles_.try_emplace(tensor.get(), each.tensor);
    const auto* const key = storage.get();
    outside_.try_emplace(key, c10::Storage(std::move(storage)));
  }
}

int64_t WatchedOperations::take_count() {
  const std::lock_guard lock(mutex_);
  return std::exchange(count_, 0);
}

void WatchedOperations::note_kernel(std::span<const torch::Tensor> tensors) {
  const std::lock_guard lock(mutex_);
  for (const torch::Tensor& tensor : tensors) note_given(tensor, within_[std::this_thread::get_id()]);
}

std::string WatchedOperations::failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

std::string WatchedOperations::copied() const {
  const std::lock_guard lock(mutex_);
  return copied_;
}

std::string WatchedOperations::changed() const {
  const std::lock_guard lock(mutex_);
  for (const OfHost& each : host_) {
    if (!each.is_taken || each.tensor.is_inference() || each.tensor._version() == each.version) continue;
    return c10::str("a tensor of the host of shape ", each.tensor.sizes());
  }
  return {};
}

// What nobody else has any more cannot change.
FoundTensors WatchedOperations::take_found() {
  const std::lock_guard lock(mutex_);
  FoundTensors found;
  for (const auto& [storage, held] : outside_) found.need(held);
  for (const torch::Tensor& leaf : std::exchange(leaves_, {})) {
    const torch::Tensor& gradient = leaf.grad();
    if (!gradient.defined() || !gradient.has_storage()) continue;
    if (made_.contains(gradient.storage().unsafeGetStorageImpl())) found.need(gradient.storage());
  }
  for (const auto& [tensor, handle] : handles_) {
    if (auto alive = handle.lock()) found.keep(torch::Tensor(std::move(alive)));
  }
  made_of_host_.clear();
  for (const OfHost& each : host_) {
    const bool has_others = each.tensor.use_count() > 1 || each.tensor.storage().use_count() > 1;
    if (!each.is_taken || !has_others) continue;
    found.need_values(each.tensor);
    if (each.tensor.use_count() > 1) found.keep(each.tensor);
  }
  outside_.clear();
  made_.clear();
  handles_.clear();
  host_.clear();
  return found;
}

void WatchedOperations::note_made_on_host(const torch::Tensor& tensor, const Numbers& sources) {
  if (!tensor.is_cpu() || !tensor.has_storage()) return;
  const c10::Storage& storage = tensor.storage();
  const bool is_from_before = std::any_of(
      host_.begin(), host_.end(), [&](const OfHost& each) { return each.tensor.storage().is_alias_of(storage); });
  if (is_from_before) return;
  const auto [made, is_new] =
      made_of_host_.try_emplace(storage.unsafeGetStorageImpl(), MadeOfHost{storage.getWeakStorageImpl(), {}});
  made->second.sources.insert(sources.begin(), sources.end());
}

void WatchedOperations::note_given(const torch::Tensor& tensor, Within& within) {
  if (!is_here(tensor)) return;
  ++count_;  // an operation on lists in place returns nothing
  const auto* storage = tensor.storage().unsafeGetStorageImpl();
  if (within.depth > 0 && !outside_.contains(storage) && !made_.contains(storage)) {
    within.given.push_back({.storage = tensor.storage().getWeakStorageImpl(),
                            .tensor = c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr())});
  } else if (!made_.contains(storage)) {
    outside_.try_emplace(storage, tensor.storage());
    handles_.try_emplace(tensor.unsafeGetTensorImpl(), tensor.getIntrusivePtr());
  }
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
