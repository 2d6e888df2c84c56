// PlainOperation: an operation of our own that reads the memory of plain tensors, where LibTorch would be asked for
// several. It is the same whether a pipeline notes what its stages use or not: a step that is repeated after a restart,
// which is the first one there and so is watched, has the bits of the one before.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/types.h>

#include <optional>

#include "ops/plain_tensor.h"

namespace cohort {

class ReplicaScope;

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

  ReplicaScope* watch_ = nullptr;  // wants to know the inputs
  std::optional<c10::impl::ExcludeDispatchKeyGuard> within_;
  bool begins_ = false;
};

}  // namespace cohort
