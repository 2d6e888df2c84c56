#include "step/flat_gradients.h"

#include <ATen/Functions.h>

namespace cohort {

FlatGradients::FlatGradients(const FlatParameters& flat)
    : flat_(flat), gradients_(flat.groups().front().copies.size()) {
  for (const FlatGroup& group : flat.groups()) {
    for (std::size_t r = 0; r < gradients_.size(); ++r) gradients_[r].push_back(torch::zeros_like(group.copies[r]));
  }
}

void FlatGradients::pack(int replica, const std::vector<torch::Tensor>& gradients) {
  for (std::size_t p = 0; p < gradients.size(); ++p) put(replica, p, gradients[p]);
}

void FlatGradients::put(int replica, std::size_t parameter, const torch::Tensor& gradient) {
  torch::Tensor home = flat_.part_of(of(replica)[flat_.parameters()[parameter].group], parameter);
  if (!gradient.defined()) {
    home.zero_();
  } else {
    home.copy_(gradient.is_sparse() ? gradient.to_dense() : gradient);
  }
}

}  // namespace cohort
