// CutLines: the replicas that have the other parts of parameters that are cut (ParameterLayout), over which norms and
// means are added up. Parameters that are not cut are the same on all of them.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "step/flat_parameters.h"
#include "step/update/tensors.h"
#include "strategy/core.h"

namespace cohort {

class CutLines {
 public:
  CutLines(const StrategyCore& core, const FlatParameters& flat);

  // Returns how a parameter of a local replica is cut. Pointers in it live as long as this.
  TensorUpdate::Cut cut_of(int local_id, std::size_t parameter) const;
  // Makes numbers of a replica's parts, [..., parameter] in any shape, those of whole parameters: a message for each
  // axis along which some parameter is cut. A collective of all replicas of the lines.
  void add_up(int local_id, torch::Tensor& numbers) const;

 private:
  // An axis along which parameters are cut.
  struct CutAxis {
    std::string name;
    torch::Tensor is_cut;  // [parameter]
  };

  const StrategyCore& core_;
  const FlatParameters& flat_;
  std::vector<std::vector<CutAxis>> axes_;  // [replica]: on its device
  // [replica]: what adds up over its line along each axis; a deque, because functions in it are pointed to.
  std::deque<std::map<std::string, std::function<void(torch::Tensor& numbers)>>> lines_;
};

}  // namespace cohort
