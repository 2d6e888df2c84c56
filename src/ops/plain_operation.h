// PlainOperation: an op that reads the memory of plain tensors, instead of several operations of LibTorch. It runs
// with an InputWatch and without. So a pipeline's step that is repeated after a restart has the same bits, although the
// first step of a run is watched.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/types.h>

#include <functional>
#include <optional>

#include "ops/plain_tensor.h"

namespace cohort {

// Takes note of the inputs of a thread's ops. LibTorch's dispatcher gives its own operations to a kernel; plain
// operations call note().
struct InputWatch {
  c10::DispatchKey key;  // the kernel's, which the thread includes
  std::function<void(const torch::Tensor&)> note;
};

// Makes a watch the calling thread's, or none (null). A thread that includes a dispatch key without one leaves all to
// LibTorch's operations.
void watch_inputs(const InputWatch* watch);

class PlainOperation {
 public:
  // While it lives, LibTorch's operations on this thread are a part of it, if it may begin.
  template <typename... Tensors>
  explicit PlainOperation(const Tensors&... inputs) {
    if (!(is_plain(inputs) && ...) || !begin()) return;
    begins_ = true;
    (note(inputs), ...);
  }

  // The same for tensors of any strides, of which some may be undefined.
  struct Strided {};
  template <typename... Tensors>
  explicit PlainOperation(Strided /*tag*/, const Tensors&... inputs) {
    if (!((!inputs.defined() || is_plain_strided(inputs)) && ...) || !begin()) return;
    begins_ = true;
    (note(inputs), ...);
  }

  // Returns whether it may begin: the inputs are plain tensors, and nothing else wants to see what is done with them.
  bool begins() const { return begins_; }

 private:
  bool begin();
  void note(const torch::Tensor& input) const;

  const InputWatch* watch_ = nullptr;
  std::optional<c10::impl::ExcludeDispatchKeyGuard> within_;
  bool begins_ = false;
};

}  // namespace cohort
