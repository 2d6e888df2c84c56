// The exchanges of exchange.h with at least one level (levels.h), each of which is a step within the groups, one along
// the columns, by the levels that are left, and one within the groups again.
#pragma once

#include <torch/types.h>

#include <vector>

#include "collective/algorithms/exchange.h"

namespace cohort {

void sum_by_levels(const Peers& peers, torch::Tensor& flat, Levels levels);
torch::Tensor sum_pieces_by_levels(const Peers& peers, const std::vector<torch::Tensor>& pieces, Levels levels);
std::vector<torch::Tensor> gather_by_levels(const Peers& peers, const torch::Tensor& own,
                                            const std::vector<int64_t>& rows, Levels levels);

}  // namespace cohort
