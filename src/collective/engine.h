// Engine: the collectives that a library has of its own (Gloo's, MPI's), in the place of those that are made of
// messages (algorithms/exchange.h). What is above both stays the same: the agreement on an operation, names, deadlines,
// records.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace cohort {

// All ranks make the same calls in the same order, one at a time; all have agreed on the sizes, and not all are 0.
// Tensors are contiguous, on the CPU, of one dimension. Any std::exception is a failure of the group, as a Transport's:
// a wait ends at the timeout, when a peer is lost, or by abort().
class Engine {
 public:
  // The bytes that a call has at most, of all ranks together: libraries count in int.
  static constexpr int64_t kMostBytes = int64_t{1} << 30;

  virtual ~Engine() = default;

  // Returns whether it adds up this dtype without rounding more often than a sum of that dtype has to. What it does not
  // add up goes by messages.
  virtual bool adds(torch::ScalarType dtype) const = 0;

  // Sums over the ranks, in place: the same bits on all ranks and in every run.
  virtual void all_reduce(const torch::Tensor& flat) = 0;

  // Fills `sum` with the sum over the ranks of what they have for this one; parts[r] is for rank r.
  virtual void reduce_scatter(const std::vector<torch::Tensor>& parts, const torch::Tensor& sum) = 0;

  // Fills `all` with every rank's bytes in rank order; rank r has sizes[r] of them, this one those of `own`.
  virtual void all_gather(const torch::Tensor& own, const std::vector<int64_t>& sizes, const torch::Tensor& all) = 0;

  // Copies the root's bytes to all ranks.
  virtual void broadcast(const torch::Tensor& bytes, int root) = 0;

  // Ends the wait in progress and all later ones, from any thread.
  virtual void abort() noexcept = 0;
};

}  // namespace cohort
