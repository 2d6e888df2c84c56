// LayerTables: where whole parameters lie in flat memory, as the kernels of rules take it that need norms or means of
// each one, with room for these. They update many parameters at once.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "optimizer/update_rule.h"

namespace cohort {

class LayerTables {
 public:
  using Place = LayerPlace;

  // Returns whether kernels update parameters on the device by norms of each one.
  static bool serve(const UpdateRule& rule, torch::ScalarType dtype, torch::Device device);

  // Lays out tables on the device for parameters in the order of their memory. Once it is made nothing waits for the
  // device.
  LayerTables(const UpdateRule& rule, std::vector<Place> places, torch::Device device);

  // The parameters from one to before another one.
  struct Range {
    std::size_t first = 0;
    std::size_t end = 0;
  };
  // Returns the parameters whose elements lie in a part of the flat memory.
  Range between(int64_t begin, int64_t end) const;
  // Returns the parameters of between() for kernels; pointers are to `begin`. Valid while this lives; those of one call
  // at a time.
  kernels::Layers layers(int64_t begin, int64_t end) const;
  // Returns whether kernels take the parameter that begins there.
  bool takes(int64_t begin) const;
  // Returns what keeps the rule's own tables.
  const std::shared_ptr<const void>& own() const { return own_.tables; }
  // Returns all memory that layers() points to.
  std::vector<torch::Tensor> memory() const;
  // Returns the squared norms of a parameter and of its direction that the kernels leave.
  torch::Tensor norms(std::size_t parameter) const { return norms_.select(0, static_cast<int64_t>(parameter)); }

 private:
  std::vector<Place> places_;
  std::vector<int64_t> first_part_;  // [parameter], and the number of parts
  torch::Tensor parts_;              // [part]: kernels::LayerPart
  torch::Tensor layers_;             // [parameter]: kernels::LayerShape
  torch::Tensor part_norms_;         // [part][2]
  torch::Tensor norms_;              // [parameter][2]
  OwnTables own_;
};

}  // namespace cohort
