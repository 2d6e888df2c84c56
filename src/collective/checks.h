// The checks of arguments that all back ends share. All throw InvalidArgument, which names the operation.
#pragma once

#include <torch/types.h>

#include <span>
#include <string>
#include <string_view>

#include "base/fail.h"
#include "cohort/communicator.h"

namespace cohort {

// Refuses tensors that are undefined or sparse.
inline void require_dense(std::string_view what, const torch::Tensor& tensor) {
  if (tensor.defined() && tensor.layout() == torch::kStrided) return;
  fail<InvalidArgument>("[collective] ", what, ": needs dense tensors, got ",
                        tensor.defined() ? c10::str(tensor.layout()) : std::string("an undefined one"));
}

inline void require_root(const Communicator& group, int root) {
  if (root >= 0 && root < group.size()) return;
  fail<InvalidArgument>("[collective] broadcast: root ", root, ", but there are ", group.size(), " ranks");
}

// Refuses tensors whose dimension 0 cannot be cut into a piece for each rank.
inline void require_pieces(const Communicator& group, const torch::Tensor& tensor) {
  require_dense("reduce_scatter", tensor);
  if (tensor.dim() > 0 && tensor.size(0) % group.size() == 0) return;
  fail<InvalidArgument>("[collective] reduce_scatter: dimension 0 of a tensor of shape ", tensor.sizes(),
                        " must be a multiple of the ", group.size(), " ranks");
}

// Refuses parts that are not one for each rank, alike but for dimension 0.
inline void require_parts(const Communicator& group, std::span<const torch::Tensor> parts) {
  if (static_cast<int>(parts.size()) != group.size()) {
    fail<InvalidArgument>("[collective] all_to_all: ", parts.size(), " parts came, one for each of the ", group.size(),
                          " ranks is wanted");
  }
  for (const torch::Tensor& part : parts) {
    require_dense("all_to_all", part);
    const torch::Tensor& first = parts.front();
    if (part.dim() > 0 && part.dim() == first.dim() && part.scalar_type() == first.scalar_type() &&
        part.device() == first.device() && part.sizes().slice(1) == first.sizes().slice(1)) {
      continue;
    }
    fail<InvalidArgument>("[collective] all_to_all: the parts must have one dtype and device, and one shape but for ",
                          "dimension 0; got ", first.scalar_type(), first.sizes(), " and ", part.scalar_type(),
                          part.sizes());
  }
}

// Refuses a peer that is not another rank of the group.
inline void require_peer(const Communicator& group, std::string_view what, const torch::Tensor& tensor, Peer peer) {
  require_dense(what, tensor);
  if (peer.rank >= 0 && peer.rank < group.size() && peer.rank != group.rank()) return;
  fail<InvalidArgument>("[collective] ", what, ": rank ", peer.rank, " is not another one of the ", group.size(),
                        " ranks, of which this is ", group.rank());
}

// Returns what a message is, in the words of both ends: "Float[2, 3] with tag 1".
inline std::string describe_message(const torch::Tensor& tensor, int tag) {
  return c10::str(tensor.scalar_type(), tensor.sizes(), " with tag ", tag);
}

}  // namespace cohort
