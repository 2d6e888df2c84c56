// ShardedVariable: a table too large for one machine, which parameter servers keep in parts (an embedding).
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/optimizer.h"

namespace cohort {

class ParameterServerState;

struct ShardedVariableOptions {
  std::string name = "table";               // its name in checkpoints and messages
  std::vector<int64_t> shape;               // dimension 0 counts the rows
  torch::ScalarType dtype = torch::kFloat;  // floating point
  // The optimizer that trains it; nothing: its values stay.
  std::optional<Optimizer> optimizer = std::nullopt;
  // Fills some rows, the first of which is `first_row`. Runs on the servers, a part at a time: it has to give the same
  // for the same row wherever and whenever it runs. If it is empty the values are uniform in [-0.05, 0.05] (Keras'
  // Embedding), from `seed`.
  std::function<void(const torch::Tensor& rows, int64_t first_row)> initializer = {};
  uint64_t seed = 0;  // the seed of the initial values, where there is no initializer
};

// A handle. Lookups may come from several replicas at a time.
class ShardedVariable {
 public:
  ShardedVariable() = default;

  // Returns the name.
  const std::string& name() const;
  // Returns the shape of the whole.
  const std::vector<int64_t>& shape() const;
  // Returns the rows of each part, one after the other.
  std::vector<int64_t> part_rows() const;

  // Returns the rows of these indices (whole numbers of any shape): of the indices' shape, then the row's. Only these
  // rows travel. In a scheduled step they can be differentiated, and the next minimize() there sends their gradient to
  // the servers. InvalidArgument: an index out of range.
  torch::Tensor lookup(const torch::Tensor& indices) const;

 private:
  friend class ParameterServerStrategy;
  ShardedVariable(std::shared_ptr<ParameterServerState> state, std::size_t variable)
      : state_(std::move(state)), variable_(variable) {}

  std::shared_ptr<ParameterServerState> state_;
  std::size_t variable_ = 0;
};

}  // namespace cohort
