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
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    torch::Tensor home = flat_.part_of(of(replica)[flat_.parameters()[p].group], p);
    if (!gradients[p].defined()) {
      home.zero_();
    } else {
      home.copy_(gradients[p].is_sparse() ? gradients[p].to_dense() : gradients[p]);
    }
  }
}

}  // namespace cohort
