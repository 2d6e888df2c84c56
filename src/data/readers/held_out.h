// Examples that are held out of training, for validation.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace cohort::datasets {

// The numbers of the examples to train and to test with, each in ascending order.
struct HeldOut {
  torch::Tensor train;
  torch::Tensor test;
};
// Draws a part of `count` examples to hold out.
HeldOut hold_out(int64_t count, double part, uint64_t seed);
// InvalidArgument names `speaker`: the part is not in [0, 1).
void require_held_out(const char* speaker, double part);

}  // namespace cohort::datasets
