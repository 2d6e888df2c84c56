// OuterStep: the exchange of workers that update parameters of their own for some steps, and then bring them together:
// local SGD (Stich, "Local SGD Converges Fast and Communicates Little", 2019, arXiv:1805.09767), after synchronous
// steps (Lin et al., "Don't Use Large Mini-Batches, Use Local SGD", 2020, arXiv:1808.07217), and DiLoCo, whose outer
// optimizer takes the mean of what they have moved as a gradient (Douillard et al., 2023, arXiv:2311.08105).
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "step/flat_parameters.h"
#include "strategy/core.h"

namespace cohort {

class OuterStep {
 public:
  OuterStep(const FlatParameters& flat, const LocalSgdOptions& options, int workers);

  // Returns whether a worker makes an update, counted from 1, by its own gradients.
  bool is_local(int64_t update) const { return update > options_.start_iter; }
  // Returns whether parameters are brought together after an update.
  bool ends(int64_t update) const {
    return is_local(update) && (update - options_.start_iter) % options_.sync_every == 0;
  }

  // Notes where the workers begin, before each local update: where they are when they are together, so that parameters
  // that were loaded since the last outer step have not been moved by the workers.
  void begin();
  // Brings the parameters of the first local replica together with those of the other workers. `moved`, flat, one a
  // group, gets a worker's part of the mean of what they have moved; `sum` makes it that of all.
  void bring_together(const std::vector<torch::Tensor>& moved, const std::function<void()>& sum);
  // Returns whether they have been updated since.
  bool is_apart() const { return is_apart_; }

  // Returns where the workers began, the outer momentum and whether they are apart; empty tensors where there is
  // nothing yet.
  std::vector<torch::Tensor> state() const;
  // InvalidArgument: of other parameters. The tensors are as many as those of state().
  void load(std::span<const torch::Tensor> state);
  // Begins anew, from what the parameters are then.
  void forget();

 private:
  const FlatParameters& flat_;
  LocalSgdOptions options_;
  int workers_;
  std::vector<torch::Tensor> begin_;     // [group]: the parameters that all workers had; none before the first update
  std::vector<torch::Tensor> momentum_;  // [group]; none before the first outer step
  bool is_apart_ = false;
};

}  // namespace cohort
