// What this worker has of a mirrored module: its parts of parameters that the replicas share (stage 3) or that are cut
// (LayoutMap), and its share of what all workers have. No parameter is ever gathered for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/slices.h"
#include "base/tensor_piece.h"
#include "cohort/mirrored.h"
#include "strategy/core.h"
#include "strategy/parameter_layout.h"

namespace cohort {

// Chooses who writes the parts of parameters that are divided along axes. Replicas that differ in their places on these
// axes have parts of their own. Those that differ on other axes alone have the same ones, of which each writes about as
// much.
class PartWriters {
 public:
  // `sizes` are those of all parameters.
  PartWriters(const StrategyCore& core, std::vector<int64_t> sizes) : core_(core), sizes_(std::move(sizes)) {}
  // Returns whether a local replica writes its part of a parameter that is divided along these axes.
  bool writes(const std::set<std::string>& axes, int local_id, std::size_t parameter);

 private:
  const StrategyCore& core_;
  std::vector<int64_t> sizes_;
  std::map<std::set<std::string>, std::vector<int>> writers_;  // [parameter], by axes
};

// Returns whether a local replica differs from the first one in its places on these axes alone.
bool leads_line(const StrategyCore& core, const std::set<std::string>& axes, int local_id);

// Returns the elements of a whole of this shape that a local replica has of a parameter that is cut, in an order of its
// dimensions.
Runs runs_of_part(const StrategyCore& core, const ParameterCut& cut, const std::vector<int64_t>& shape, int local_id,
                  const std::vector<int64_t>& order = {});

// A local replica's slice of a parameter that the replicas share, or of its part where the parameter is cut (`cut` is
// null where not).
struct SliceOfPart {
  const ParameterCut* cut = nullptr;
  int local_id = 0;
  Slice elements;  // of the parameter or the part as it lies in memory
};
// Returns the elements of the whole that a slice has: at most three, in the order of the slice.
std::vector<Runs> runs_of_slice(const StrategyCore& core, const SliceOfPart& slice, const WholeTensor& whole);
// Returns the pieces that a slice, which has these values, is.
std::vector<TensorPiece> pieces_of_slice(const StrategyCore& core, const SliceOfPart& slice, const std::string& name,
                                         const WholeTensor& whole, const torch::Tensor& values);
// Reads the elements of a slice.
torch::Tensor read_slice(const StrategyCore& core, const SliceOfPart& slice, const std::string& name,
                         const WholeTensor& whole, const TensorSource& source);

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
