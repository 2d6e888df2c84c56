// FlatGradients: every replica's gradients, copied one after the other into flat memory of its own, where they go by
// messages or to another device.
#pragma once

#include <torch/types.h>

#include <vector>

#include "step/flat_parameters.h"

namespace cohort {

class FlatGradients {
 public:
  explicit FlatGradients(const FlatParameters& flat);

  // Takes a replica's gradients, one a parameter, undefined for zero.
  void pack(int replica, const std::vector<torch::Tensor>& gradients);
  // Takes one of them.
  void put(int replica, std::size_t parameter, const torch::Tensor& gradient);
  // Returns them flat, one a group, on the replica's device.
  std::vector<torch::Tensor>& of(int replica) { return gradients_[static_cast<std::size_t>(replica)]; }

 private:
  const FlatParameters& flat_;
  std::vector<std::vector<torch::Tensor>> gradients_;  // [replica][group]
};

}  // namespace cohort
