// PowerSgd: the sum of the gradients of several parties, approximated by matrices of low rank, of which only the
// factors travel (Vogels, Karimireddy and Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
// Optimization", 2019, arXiv:1905.13727). What a party's gradient loses is added to its next one.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>
#include <vector>

#include "cohort/communicator.h"
#include "cohort/exchange_options.h"
#include "step/exchange/comm_hook.h"
#include "step/flat_parameters.h"

namespace cohort {

class PowerSgd final : public CommHook {
 public:
  // One party, which a local replica is, or which it speaks for.
  PowerSgd(const FlatParameters& flat, const PowerSgdOptions& options, int local_id);

  // Returns whether the gradients of an update, counted from 1, are approximated.
  bool sums(int64_t update) const override { return update > options_.start_power_sgd_iter; }

  // A collective of the parties: makes of their gradients, flat, one tensor a group, the approximate sum, which is the
  // same bits for all of them. Two messages a group: the first factors with what is not approximated, then the second
  // ones.
  void sum(Communicator& group, const std::vector<torch::Tensor>& gradients, int64_t update) override;

  // Returns what this party keeps from step to step, on the CPU: a factor and an error for each of
  // FlatParameters::all_names(), empty tensors where there is nothing.
  std::vector<torch::Tensor> state() const override;
  // InvalidArgument: of other parameters or options. The tensors are as many as those of state().
  void load(std::span<const torch::Tensor> state) override;
  // Begins anew.
  void forget() override;

 private:
  // A parameter that is approximated: the matrix rows x columns as first * second^T.
  struct Matrix {
    std::size_t parameter = 0;
    std::size_t number = 0;  // among all parameters, of which other processes of a pipeline may have some
    int64_t rows = 0;
    int64_t columns = 0;
    int64_t rank = 0;
    torch::Tensor second;  // columns x rank: that of the step before, orthonormal, where the next one begins
    torch::Tensor error;   // rows x columns: what this party's gradients have lost; undefined for zero
  };
  // The parameters of a group.
  struct Members {
    std::vector<Matrix> matrices;
    std::vector<std::size_t> others;  // those whose gradients travel as they are
  };

  torch::Tensor begin(const Matrix& matrix, const torch::Tensor& like, int64_t update) const;
  void sum_group(Communicator& group, Members& members, const torch::Tensor& gradients, int64_t update);

  const FlatParameters& flat_;
  PowerSgdOptions options_;
  int local_id_;
  std::vector<Members> groups_;
};

}  // namespace cohort
