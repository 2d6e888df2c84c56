// Collectives made of messages. All ranks call the same with the same sizes. On an error the wire's messages are
// dropped.
#pragma once

#include <torch/types.h>

#include <span>
#include <vector>

#include "collective/process/wire.h"

namespace cohort {

// Of a contiguous tensor in the host's memory.
inline std::span<std::byte> bytes_of(const torch::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

// The sum over the ranks, in place, added in rank order: the same bits on every rank and in every run. `flat` is on the
// CPU, contiguous, of one dimension. Small tensors go whole to every rank (one step); of large ones each rank adds up a
// slice and sends it to all, as in the ring all-reduce (Patarasuk and Yuan, 2009) but in two steps.
void exchange_sum(Wire& wire, torch::Tensor& flat);

// The root's bytes everywhere, along a binomial tree.
void exchange_broadcast(Wire& wire, std::span<std::byte> bytes, int root);

// Returns when all ranks have called it.
void exchange_meet(Wire& wire);

// DataLoss: the rows that the ranks say to have are no numbers of rows, or more than fit in memory with those of `own`:
// they come from other processes.
void require_rows(const torch::Tensor& own, const std::vector<int64_t>& rows);

// Every rank's tensor, in rank order, which are alike but for dimension 0: rank r's has rows[r]. Contiguous, on the
// CPU.
std::vector<torch::Tensor> exchange_gather(Wire& wire, const torch::Tensor& own, const std::vector<int64_t>& rows);

}  // namespace cohort
