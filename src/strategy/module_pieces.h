// What this worker has of a mirrored module: its parts of parameters that the replicas share (stage 3) or that are cut
// (LayoutMap), and its share of what all workers have. No parameter is ever gathered for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/tensor_piece.h"
#include "cohort/mirrored.h"
#include "strategy/core.h"
#include "strategy/parameter_layout.h"

namespace cohort {

// Who writes the parts of parameters that are divided along axes: each replica of a line has a part of its own, and
// lines beside each other have the same ones, which they share so that each writes about as much.
class PartWriters {
 public:
  // `sizes` are those of all parameters.
  PartWriters(const StrategyCore& core, std::vector<int64_t> sizes) : core_(core), sizes_(std::move(sizes)) {}
  // Returns whether a local replica writes its part of a parameter that is divided along the axis.
  bool writes(std::string_view axis, int local_id, std::size_t parameter);

 private:
  const StrategyCore& core_;
  std::vector<int64_t> sizes_;
  std::map<std::string, std::vector<int>, std::less<>> lines_;  // [parameter], by axis
};

// Returns the elements of a whole that a local replica has of a parameter that is cut.
Runs runs_of_part(const StrategyCore& core, const ParameterCut& cut, const std::vector<int64_t>& shape, int local_id);

// Returns the pieces of those tensors which this worker writes, of some that all of them have. Under local SGD the
// chief writes all.
std::vector<TensorPiece> own_share(const StrategyCore& core, const NamedTensors& tensors);

// Returns whether the replicas share parameters of a module or have parts of them, or its stages lie with several
// workers, so that MirroredModule::state() gathers copies. The same on all workers.
bool is_divided(const MirroredModule& module);

// Who brings what all workers have: a share of it each, or the chief everything.
enum class Commons { kShared, kByChief };

// Returns the pieces of a module that this worker brings; together the workers bring each element of
// MirroredModule::state() once. Their values are the module's own memory. A collective of all workers.
std::vector<TensorPiece> pieces_of(const MirroredModule& module, Commons commons = Commons::kShared);

// Sets every copy's parameters and buffers to what is read, of which this worker reads what its replicas have. Errors
// are those of MirroredModule::load_state().
void load_pieces(const MirroredModule& module, const TensorSource& source);

}  // namespace cohort
