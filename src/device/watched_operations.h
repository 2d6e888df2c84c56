// The tensors that LibTorch's operations of a thread are given and make on one device, and of backward passes that it
// begins.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace cohort {

// Thread-safe.
class WatchedOperations final : public c10::DebugInfoBase {
 public:
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  explicit WatchedOperations(torch::Device device) : device_(device) {}

  // Returns how many arguments and results were on the device since it was last asked, of operations and of kernels of
  // this library's.
  int64_t take_count();
  // Takes notice of such a kernel, which uses these tensors.
  void note_kernel(std::span<const torch::Tensor> tensors);
  // Returns the operation that has ended with an error; empty: none.
  std::string failed() const;
  // Returns what was copied between the host and the device; empty: nothing.
  std::string copied() const;
  // Returns the memory of the tensors from before, and of gradients that were left in tensors. Lets go of them.
  std::vector<WeakStorage> take_needed();

 private:
  friend struct OperationObserver;
  void note_begin(const at::RecordFunction& operation);
  void note_end(const at::RecordFunction& operation);
  bool is_here(const torch::Tensor& tensor) const { return tensor.device() == device_ && tensor.has_storage(); }
  void note_given(const torch::Tensor& tensor);
  void note_copy(c10::ArrayRef<const c10::IValue> inputs);

  const torch::Device device_;
  mutable std::mutex mutex_;
  int64_t count_ = 0;
  std::string failed_;
  std::string copied_;
  std::map<const c10::StorageImpl*, c10::Storage> outside_;  // held, so that its address is no other one's
  std::map<const c10::StorageImpl*, WeakStorage> made_;      // the same
  std::vector<torch::Tensor> leaves_;
};

// Notes the operations of the calling thread while it lives; to be destroyed by its own thread, the last one first.
class OperationWatch {
 public:
  explicit OperationWatch(const std::shared_ptr<WatchedOperations>& operations);
  OperationWatch(const OperationWatch&) = delete;
  OperationWatch& operator=(const OperationWatch&) = delete;
  ~OperationWatch();

 private:
  c10::DebugInfoGuard operations_;
  at::CallbackHandle handle_;
};

}  // namespace cohort
