// Rebatch: a stream of batches becomes a stream of shares of given sizes, as if unbatched and batched again.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "cohort/example.h"

namespace cohort {

class Rebatch {
 public:
  using Input = std::function<bool(Example& batch)>;

  // `sizes` are taken in turn, `step` of them at a time (one a local replica).
  Rebatch(Input input, std::vector<int64_t> sizes, std::size_t step)
      : input_(std::move(input)), sizes_(std::move(sizes)), step_(step) {}

  // Returns the next step's shares: views where a share lies inside one incoming batch. When the input ends the first
  // shares are filled and the others empty (dimension 0 of size 0, the other dimensions and the dtype as usual); false
  // when the input had nothing left. A step whose sizes are all 0, as a worker may have whose turn it is not, is no
  // end.
  bool next(std::vector<Example>& shares);

  nlohmann::json save(std::vector<torch::Tensor>& tensors) const;
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors);

 private:
  bool load();
  Example take(int64_t size);

  Input input_;
  std::vector<int64_t> sizes_;
  std::size_t step_;
  std::size_t turn_ = 0;
  Example current_;  // the incoming batch that is being handed out
  int64_t at_ = 0;
  int64_t rows_ = 0;
  bool ended_ = false;
};

}  // namespace cohort
