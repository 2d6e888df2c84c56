// Communicator: collective operations between ranks. A back end (local, later gloo, nccl, mpi) implements this one
// class.
#pragma once

#include <torch/types.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort {

// The two reductions that distribution strategies know. Both add in rank order, so results do not depend on timing.
enum class ReduceOp { kSum, kMean };

// "SUM" or "MEAN", in any case; anything else: InvalidArgument.
ReduceOp parse_reduce_op(std::string_view text);
// Returns "SUM" or "MEAN".
std::string_view to_string(ReduceOp op);

// One rank's end of a group. Every rank calls the same operations with the same shapes and dtypes in the same order;
// a rank that does not is found out and named on every rank (FailedPrecondition). Every call ends within the group's
// timeout (DeadlineExceeded names the missing ranks) and fails with Cancelled once the group is aborted.
// One thread a rank at a time; different ranks run in parallel. A group of one rank returns at once.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual std::string_view name() const = 0;  // of the back end
  // Returns this rank, from 0 to size() - 1.
  virtual int rank() const = 0;
  // Returns the number of ranks in the group.
  virtual int size() const = 0;

  // Reduces each tensor over the ranks, in place. Dense, any floating or integer dtype; kMean on integers truncates.
  virtual void all_reduce(std::span<torch::Tensor> tensors, ReduceOp op) = 0;

  // Copies the root's values into the tensors of all others.
  virtual void broadcast(std::span<torch::Tensor> tensors, int root) = 0;

  // The tensors of all ranks, in rank order. Their sizes may differ in dimension 0 only.
  virtual std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor) = 0;

  // Reduces over the ranks and returns this rank's part: dimension 0 is cut into size() equal pieces
  // (InvalidArgument when it does not divide).
  virtual torch::Tensor reduce_scatter(const torch::Tensor& tensor, ReduceOp op) = 0;

  // Returns once every rank has called it.
  virtual void barrier() = 0;

  // Fails the pending and all later operations of every rank with Cancelled and this reason. From any thread.
  virtual void abort(const std::string& reason) = 0;
};

}  // namespace cohort
