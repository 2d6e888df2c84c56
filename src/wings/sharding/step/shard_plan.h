// ShardPlan: which elements of the flat parameters belong to which of the replicas that share the states of an
// optimizer. Messages of gradients are the units of the plan, and each is cut into one slice an owner, so that a sum
// goes straight to its owner and the updated slices come back by one gather.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/slices.h"
#include "collective/packs.h"
#include "step/flat_parameters.h"
#include "wings/sharding/strategy/parameter_shards.h"

namespace cohort {

// Returns the parameters that the replicas share; null where each replica has all of them.
inline ParameterShards* shards_of(const FlatParameters& flat) {
  return static_cast<ParameterShards*>(flat.shared().get());
}

// Returns whether kernels of the host can update all parameters of this process, whose states lie there.
bool updates_by_kernels(const StrategyCore& core, const FlatParameters& flat);

// Returns whether a rule gets parameters whole: it wants them so, or it needs norms of them and no kernels make these.
bool takes_whole(const Optimizer& rule, bool by_kernels);

// Returns the cuts of a run, so that all owners' slices are of about the same size.
std::vector<int64_t> even_cuts(const Pack& pack, int owners);

// Returns the cuts of a group that the replicas share (ParameterSharing). Slices are of about the same size, unless the
// rule needs whole parameters: each belongs to the owner in whose even share its middle lies then.
std::vector<int64_t> cuts_of(const FlatParameters& flat, const FlatGroup& group, const Optimizer& rule,
                             const StrategyCore& core);

// A run of a flat group and its cuts: owner o has the elements from cuts[o] to cuts[o + 1].
struct ShardUnit {
  std::size_t group = 0;
  std::vector<int64_t> cuts;

  int64_t begin() const { return cuts.front(); }
  int64_t size() const { return cuts.back() - cuts.front(); }
  Slice slice(int owner) const {
    return {cuts[static_cast<std::size_t>(owner)], cuts[static_cast<std::size_t>(owner) + 1]};
  }
};

// A part of one parameter that one owner has.
struct ShardPiece {
  std::size_t parameter = 0;
  int64_t begin = 0;  // within the parameter
  int64_t size = 0;
  int64_t at = 0;        // the place of its first element in the owner's shard of the group
  std::size_t unit = 0;  // the unit that has it
  int64_t in_slice = 0;  // the place of its first element in the owner's slice of the unit
};

class ShardPlan {
 public:
  // Cuts the packs, [group], into slices of about the same size; a group that the replicas share is one unit, with the
  // cuts that it has. With `whole` parameters are not cut: packs begin with
  // parameters then, and each parameter has one owner.
  ShardPlan(const FlatParameters& flat, const std::vector<std::vector<Pack>>& packs, int owners, bool whole);

  int owners() const { return owners_; }
  // Returns whether the parameters are not cut, so that slices may differ in size.
  bool whole() const { return whole_; }
  // Returns the units, in the order in which backward computes their gradients.
  const std::vector<ShardUnit>& units() const { return units_; }
  // Returns the parameters that have elements in a unit, ascending.
  const std::vector<std::size_t>& parameters_in(std::size_t unit) const { return parameters_[unit]; }
  // Returns the elements of each piece of a sum that is scattered: those of the largest slice.
  int64_t width(std::size_t unit) const;
  // Returns the elements of a group that an owner has.
  int64_t size(std::size_t group, int owner) const;
  // Returns the place of a unit's slice in its owner's shard of the group.
  int64_t at(std::size_t unit, int owner) const;
  // Returns the pieces of an owner, unit by unit.
  std::vector<ShardPiece> pieces(int owner) const;

 private:
  void sort_units();

  const FlatParameters& flat_;
  int owners_;
  bool whole_;
  std::vector<ShardUnit> units_;
  std::vector<std::vector<std::size_t>> parameters_;  // [unit]
};

}  // namespace cohort
