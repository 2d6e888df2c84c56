// CommHook: what sums gradients in a way of its own, in place of all-reduces; PyTorch has communication hooks for this.
// A compression (collective/gradient_compression.h) makes one for each local replica, or for the worker.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cohort/communicator.h"
#include "cohort/exchange_options.h"
#include "step/flat_parameters.h"

namespace cohort {

class CommHook {
 public:
  virtual ~CommHook() = default;

  // Returns whether it sums the gradients of an update, counted from 1. Others travel as they are.
  virtual bool sums(int64_t update) const = 0;

  // A collective of the parties: makes of their gradients, flat, one tensor a group, the sum, or what stands for it,
  // which is the same bits for all of them.
  virtual void sum(Communicator& group, const std::vector<torch::Tensor>& gradients, int64_t update) = 0;

  // Returns what this party keeps from step to step, on the CPU.
  virtual std::vector<torch::Tensor> state() const = 0;
  // InvalidArgument: of other parameters or options. The tensors are as many as those of state().
  virtual void load(std::span<const torch::Tensor> state) = 0;
  // Begins anew.
  virtual void forget() = 0;
};

// Returns the hook of the compression that the options name, for a local replica or the worker that it speaks for.
// Null: the compression has none.
std::unique_ptr<CommHook> make_comm_hook(const FlatParameters& flat, const ExchangeOptions& options, int local_id);

}  // namespace cohort
