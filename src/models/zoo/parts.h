// The code of models of which each replica of a line may have a part.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "cohort/parallel/axes.h"
#include "cohort/topology.h"

namespace cohort::models {

// Sets elements of x to zero with the probability, by the generator of the current replica, and scales the others to
// make up for it. The draws have `shape`, which broadcasts to that of x: [examples, 1, ...] drops whole examples
// (stochastic depth, G. Huang et al., 2016).
torch::Tensor drop(const torch::Tensor& x, double probability, at::IntArrayRef shape);

// Does the same for a replica's part of dimension `dim` of a whole that is divided along an axis of a mesh. The draws
// are those of the whole, so that all replicas of the line go on with the same random numbers. An empty axis: x is
// whole.
torch::Tensor drop_part(const torch::Tensor& x, double probability, const std::string& axis, int64_t dim);

// Returns x, [examples, positions, size], divided along an axis of a mesh by its positions; an empty axis: x itself.
torch::Tensor in_positions(const torch::Tensor& x, const std::string& axis);
// Returns the sum over the replicas along an axis of the terms that they have computed from x: divided as x where x is
// divided, else whole.
torch::Tensor sum_like(const torch::Tensor& x, const torch::Tensor& term, const std::string& axis);

// What a layout asks of a module whose parameters are to be cut: by columns, by rows or by heads.
using ParameterCuts = std::map<std::string, ParameterAxes>;
// Returns the axis that all the cuts have. InvalidArgument: they are not those of `wanted`, of the axis in place of
// "*".
std::string require_cuts(const char* model, const ParameterCuts& cuts, ParameterCuts wanted);
// InvalidArgument: the replicas along the axis do not divide so many heads.
void require_heads(const char* model, const char* what, int64_t heads, const std::string& axis,
                   const Topology& topology);

}  // namespace cohort::models
