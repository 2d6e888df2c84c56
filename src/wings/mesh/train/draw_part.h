// Random numbers for a replica's part of a whole.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>

namespace cohort {

// Does drop_out() with x, the replica's part of dimension `dim` along an axis of the mesh. All parts are drawn: the
// numbers are those of the whole.
torch::Tensor drop_out_part(const torch::Tensor& x, double rate, const std::string& axis, int64_t dim);

}  // namespace cohort
