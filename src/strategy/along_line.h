// enter_axis() and sum_along() of cohort/parallel/axes.h, for those who have the line itself.
#pragma once

#include <torch/types.h>

#include "cohort/communicator.h"

namespace cohort {

// Returns x, whose gradient is the sum of the gradients of all replicas of the line.
torch::Tensor enter_line(const torch::Tensor& x, Communicator& line);
// Returns the sum of x over the line, whose gradient is that of each x.
torch::Tensor sum_over_line(const torch::Tensor& x, Communicator& line);

}  // namespace cohort
