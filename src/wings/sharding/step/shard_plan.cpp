// Slices are cut at multiples of kSliceAlign elements, wherever the parameters begin and end; an owner's shard of a
// group is its slices of the group's units, one after the other. Where parameters are not cut, the cuts are those of
// the whole group, so that the shards are of about the same size.
#include "wings/sharding/step/shard_plan.h"

#include <algorithm>

#include "ops/kernels/kernels.h"
#include "strategy/core.h"

namespace cohort {

std::vector<int64_t> even_cuts(const Pack& pack, int owners) {
  std::vector<int64_t> cuts{pack.begin};
  for (int o = 0; o < owners; ++o) cuts.push_back(pack.begin + slice_of(pack.end - pack.begin, o, owners).end);
  return cuts;
}

namespace {

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

std::vector<int64_t> cuts_of(const FlatParameters& flat, const FlatGroup& group, const Optimizer& rule,
                             const StrategyCore& core) {
  const int owners = core.topology().axis(core.plan().sharding.axis).size;
  if (takes_whole(rule, updates_by_kernels(core, flat))) return cuts_between(flat, group, owners);
  return even_cuts({0, group.size}, owners);
}

bool updates_by_kernels(const StrategyCore& core, const FlatParameters& flat) {
  return core.has_states_on_host() &&
         std::all_of(flat.groups().begin(), flat.groups().end(),
                     [](const FlatGroup& group) { return kernels::has_kernels(group.dtype); });
}

bool takes_whole(const Optimizer& rule, bool by_kernels) {
  return rule.rule().takes_whole() || (rule.rule().needs_norms() && !by_kernels);
}

namespace {

// Returns the packs with their beginnings moved back to those of the parameters that they cut; what is empty then is
// left out.
std::vector<Pack> packs_between(const FlatParameters& flat, const FlatGroup& group, const std::vector<Pack>& packs) {
  std::vector<Pack> between;
  int64_t end = group.size;
  for (const Pack& pack : packs) {
    int64_t begin = 0;
    for (const std::size_t p : group.members) {
      if (flat.parameters()[p].offset <= pack.begin) begin = flat.parameters()[p].offset;
    }
    if (begin < end) between.push_back({begin, end});
    end = std::min(end, begin);
  }
  return between;
}

// Returns the parts of the cuts of a whole group that lie within the pack.
std::vector<int64_t> cuts_within(const Pack& pack, std::vector<int64_t> cuts) {
  for (int64_t& cut : cuts) cut = std::clamp(cut, pack.begin, pack.end);
  return cuts;
}

}  // namespace

ShardPlan::ShardPlan(const FlatParameters& flat, const std::vector<std::vector<Pack>>& packs, int owners, bool whole)
    : flat_(flat), owners_(owners), whole_(whole) {
  for (std::size_t g = 0; g < flat.groups().size(); ++g) {
    const FlatGroup& group = flat.groups()[g];
    if (!group.cuts.empty()) {
      units_.push_back({.group = g, .cuts = group.cuts});
      continue;
    }
    if (!whole) {
      for (const Pack& pack : packs[g]) units_.push_back({.group = g, .cuts = even_cuts(pack, owners)});
      continue;
    }
    const std::vector<int64_t> cuts = cuts_between(flat, group, owners);
    for (const Pack& pack : packs_between(flat, group, packs[g])) {
      units_.push_back({.group = g, .cuts = cuts_within(pack, cuts)});
    }
  }
  sort_units();
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

// Backward computes the gradients of the last parameters first, of whichever group: a unit is complete with the first
// of its parameters. The order within a group stays.
void ShardPlan::sort_units() {
  const auto first = [&](const ShardUnit& unit) {
    const std::vector<std::size_t>& members = flat_.groups()[unit.group].members;
    const auto reaches = [&](std::size_t p) {
      return flat_.parameters()[p].offset + flat_.parameters()[p].size > unit.begin();
    };
    const auto found = std::find_if(members.begin(), members.end(), reaches);
    return found == members.end() ? flat_.parameters().size() : *found;
  };
  std::stable_sort(units_.begin(), units_.end(),
                   [&](const ShardUnit& a, const ShardUnit& b) { return first(a) > first(b); });
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
                      .at = at(u, owner) + begin - slice.begin,
                      .unit = u,
                      .in_slice = begin - slice.begin});
    }
  }
  return list;
}

}  // namespace cohort
