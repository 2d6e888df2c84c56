// The tensors that LibTorch's operations of a thread are given and make on one device, and of backward passes that it
// begins.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "wings/function/device/found_tensors.h"

namespace cohort {

// Thread-safe.
class WatchedOperations final : public c10::DebugInfoBase {
 public:
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  explicit WatchedOperations(torch::Device device) : device_(device) {}

  // Returns how many arguments and results were on the device since it was last asked, of operations and of kernels of
  // this library's. A result that is cut off from its gradients (detach) is none, because steps often end so.
  int64_t take_count();
  // Takes notice of such a kernel, which uses these tensors.
  void note_kernel(std::span<const torch::Tensor> tensors);
  // Returns the operation that has ended with an error; empty: none.
  std::string failed() const;
  // Returns what was copied between the host and the device; empty: nothing.
  std::string copied() const;
  // Returns what is changed of the host's numbers that operations of the device have taken; empty: nothing. An
  // operation takes the value of a tensor of the host without dimensions as it takes a number.
  std::string changed() const;
  // Returns the tensors from before, the gradients that were left in tensors, and the host's tensors from before of
  // which such numbers were made. Lets go of them.
  FoundTensors take_found();

 private:
  friend struct OperationObserver;
  using Numbers = std::set<std::size_t>;  // of host_
  // A tensor of the host from before.
  struct OfHost {
    torch::Tensor tensor;
    int64_t version = 0;
    bool is_taken = false;  // by an operation of the device, also what was made of it
  };
  // Memory of the host that was made, also of such tensors.
  struct MadeOfHost {
    WeakStorage memory;  // so that its address is no other one's
    Numbers sources;
  };

  // A tensor that a part of an operation is given, and that was not known before. LibTorch announces no operation for
  // what it makes within one, such as the result of a sum, but has other operations view it.
  struct GivenWithin {
    WeakStorage storage;
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
  };
  // The operations that a thread is in.
  struct Within {
    int depth = 0;
    std::vector<GivenWithin> given;
  };

  // What the end of an operation has to know: whether it was given tensors of the device, and if not, those of the
  // host.
  struct Begun {
    bool is_of_device = false;
    bool is_part = false;  // of another operation
    bool is_work = true;   // the device has something to do
    Numbers sources = {};
  };

  Begun note_begin(const at::RecordFunction& operation);
  void note_end(const at::RecordFunction& operation, const Begun& begun);
  Numbers sources_of(const torch::Tensor& of_host);
  bool is_here(const torch::Tensor& tensor) const { return tensor.device() == device_ && tensor.has_storage(); }
  void note_given(const torch::Tensor& tensor, Within& within);
  void note_given_within(Within& within);
  void note_copy(c10::ArrayRef<const c10::IValue> inputs);
  void note_made_on_host(const torch::Tensor& tensor, const Numbers& sources);

  const torch::Device device_;
  mutable std::mutex mutex_;
  int64_t count_ = 0;
  std::string failed_;
  std::string copied_;
  std::map<const c10::StorageImpl*, c10::Storage> outside_;  // held, so that its address is no other one's
  std::map<const c10::StorageImpl*, WeakStorage> made_;      // the same
  std::vector<torch::Tensor> leaves_;
  // The tensors that had memory from before; their addresses are no other one's.
  std::map<const c10::TensorImpl*, c10::weak_intrusive_ptr<c10::TensorImpl>> handles_;
  std::vector<OfHost> host_;
  std::map<std::thread::id, Within> within_;
  std::map<const c10::StorageImpl*, MadeOfHost> made_of_host_;
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
