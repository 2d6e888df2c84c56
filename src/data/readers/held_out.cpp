#include "data/readers/held_out.h"

#include <ATen/Functions.h>

#include <cmath>

#include "base/fail.h"
#include "device/host_random.h"

namespace cohort::datasets {

void require_held_out(const char* speaker, double part) {
  if (part >= 0.0 && part < 1.0) return;
  fail<InvalidArgument>("[data] ", speaker, ": held_out is ", part, ", wanted 0 or more and below 1");
}

HeldOut hold_out(int64_t count, double part, uint64_t seed) {
  const auto number = static_cast<int64_t>(std::llround(static_cast<double>(count) * part));
  const torch::Tensor order = at::randperm(count, make_host_generator(seed), torch::kLong);
  return {.train = std::get<0>(order.slice(0, number).sort()), .test = std::get<0>(order.slice(0, 0, number).sort())};
}

}  // namespace cohort::datasets
