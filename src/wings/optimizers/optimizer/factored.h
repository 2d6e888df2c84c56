// FactoredTables: the rows, columns and matrices of whole parameters, as Adafactor's kernels take them, with room for
// their sums.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "optimizer/update_rule.h"
#include "wings/optimizers/optimizer/kernels/more_table.h"

namespace cohort {

class FactoredTables {
 public:
  FactoredTables(const std::vector<LayerPlace>& places, torch::Device device);

  // Returns the parameters from `first` to before `end`; the others have none of their rows.
  kernels::FactoredLayers layers(std::size_t first, std::size_t end) const;
  // Returns all memory that layers() points to.
  std::vector<torch::Tensor> memory() const { return {layers_, strips_, tiles_, sums_, means_}; }

 private:
  struct Firsts {
    int64_t row = 0;
    int64_t strip = 0;
    int64_t tile = 0;
    int64_t matrix = 0;
  };

  std::vector<Firsts> firsts_;  // [parameter], and the numbers of all
  torch::Tensor layers_;        // [parameter]: kernels::Factored
  torch::Tensor strips_;        // [strip]: kernels::Strip
  torch::Tensor tiles_;         // [tile]: kernels::Tile
  torch::Tensor sums_;
  torch::Tensor means_;  // [matrix]
};

}  // namespace cohort
