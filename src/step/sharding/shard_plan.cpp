// Slices are cut at multiples of kSliceAlign elements, wherever the parameters begin and end; an owner's shard of a
// group is its slices of the group's units, one after the other.
#include "step/sharding/shard_plan.h"

#include <algorithm>

namespace cohort {

namespace {

std::vector<int64_t> even_cuts(const Pack& pack, int owners) {
  std::vector<int64_t> cuts{pack.begin};
  for (int o = 0; o < owners; ++o) cuts.push_back(pack.begin + slice_of(pack.end - pack.begin, o, owners).end);
  return cuts;
}

// Returns cuts between parameters: each one belongs to the owner in whose even share its middle lies.
std::vector<int64_t> cuts_between(const FlatParameters& flat, const FlatGroup& group, int owners) {
  std::vector<int64_t> cuts(static_cast<std::size_t>(owners) + 1, group.size);
  cuts[0] = 0;
  int owner = 0;
  for (const std::size_t p : group.members) {
    const FlatParameter& parameter = flat.parameters()[p];
    const int64_t middle = parameter.offset + parameter.size / 2;
    while (owner + 1 < owners && middle >= slice_of(group.size, owner, owners).end) {
      cuts[static_cast<std::size_t>(++owner)] = parameter.offset;
    }
  }
  return cuts;
}

}  // namespace

ShardPlan::ShardPlan(const FlatParameters& flat, const std::vector<std::vector<Pack>>& packs, int owners, bool whole)
    : flat_(flat), owners_(owners), whole_(whole) {
  for (std::size_t g = 0; g < flat.groups().size(); ++g) {
    if (whole) {
      units_.push_back({.group = g, .cuts = cuts_between(flat, flat.groups()[g], owners)});
      continue;
    }
    for (const Pack& pack : packs[g]) units_.push_back({.group = g, .cuts = even_cuts(pack, owners)});
  }
  for (const ShardUnit& unit : units_) {
    std::vector<std::size_t>& inside = parameters_.emplace_back();
    for (const std::size_t p : flat.groups()[unit.group].members) {
      const FlatParameter& parameter = flat.parameters()[p];
      const bool overlaps = parameter.offset < unit.begin() + unit.size() &&
                            parameter.offset + parameter.size > unit.begin() && parameter.size > 0;
      if (overlaps) inside.push_back(p);
    }
  }
}

int64_t ShardPlan::width(std::size_t unit) const {
  int64_t most = 0;
  for (int o = 0; o < owners_; ++o) most = std::max(most, units_[unit].slice(o).size());
  return most;
}

int64_t ShardPlan::size(std::size_t group, int owner) const {
  int64_t total = 0;
  for (const ShardUnit& unit : units_) total += unit.group == group ? unit.slice(owner).size() : 0;
  return total;
}

int64_t ShardPlan::at(std::size_t unit, int owner) const {
  int64_t before = 0;
  for (std::size_t u = 0; u < unit; ++u) {
    if (units_[u].group == units_[unit].group) before += units_[u].slice(owner).size();
  }
  return before;
}

std::vector<ShardPiece> ShardPlan::pieces(int owner) const {
  std::vector<ShardPiece> list;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const Slice slice = units_[u].slice(owner);
    for (const std::size_t p : parameters_[u]) {
      const FlatParameter& parameter = flat_.parameters()[p];
      const int64_t begin = std::max(slice.begin, parameter.offset);
      const int64_t end = std::min(slice.end, parameter.offset + parameter.size);
      if (begin >= end) continue;
      list.push_back({.parameter = p,
                      .begin = begin - parameter.offset,
                      .size = end - begin,
                      .at = at(u, owner) + begin - slice.begin});
    }
  }
  return list;
}

}  // namespace cohort
