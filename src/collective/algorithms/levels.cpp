#include "collective/algorithms/levels.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/fail.h"

namespace cohort {

namespace {

// Returns the levels of so many, of about the same size, of which the outermost is left out.
std::vector<int> alike(int ranks, int count) {
  std::vector<int> sizes;
  for (int left = count; left > 1; --left) {
    sizes.push_back(std::max(2, static_cast<int>(std::lround(std::pow(ranks, 1.0 / left)))));
    ranks = Level(ranks, sizes.back()).groups();
  }
  return sizes;
}

std::vector<int> pairs(int ranks) {
  std::vector<int> sizes;
  for (; ranks > 3; ranks /= 2) sizes.push_back(2);
  return sizes;
}

std::vector<int> fastest(int ranks) {
  std::vector<int> best;
  double least = seconds_of_phase(ranks, best);
  for (int count = 2; 1 << count <= ranks; ++count) {
    std::vector<int> sizes = alike(ranks, count);
    const double seconds = seconds_of_phase(ranks, sizes);
    if (seconds >= least) continue;
    least = seconds;
    best = std::move(sizes);
  }
  return best;
}

}  // namespace

std::vector<int> levels_named(std::string_view name, int ranks) {
  if (name == "direct") return {};
  if (name == "auto") return ranks <= kDirectRanks ? std::vector<int>() : fastest(ranks);
  if (name == "hierarchical") return alike(ranks, 2);
  if (name == "tree") return pairs(ranks);
  fail<InvalidArgument>("[collective] there is no algorithm \"", name,
                        "\" of collectives between workers, only auto, direct, hierarchical and tree");
}

double seconds_of_phase(int ranks, const std::vector<int>& levels, const MessageCosts& costs) {
  double seconds = 0;
  for (const int size : levels) {
    const Level level(ranks, size);
    if (level.groups() == 1) break;
    const int most = (ranks + level.groups() - 1) / level.groups();
    seconds += (most - 1) * costs.message + costs.latency;
    ranks = level.groups();
  }
  return seconds + (ranks - 1) * costs.message + costs.latency;
}

Level::Level(int ranks, int group_size) : ranks_(ranks), groups_(std::max(1, ranks / group_size)) {}

int Level::group_of(int rank) const {
  int group = static_cast<int>(static_cast<int64_t>(rank) * groups_ / ranks_);
  while (rank >= begin(group + 1)) ++group;
  return group;
}

std::vector<int> Level::group(int group) const {
  std::vector<int> ranks(static_cast<std::size_t>(members(group)));
  std::iota(ranks.begin(), ranks.end(), begin(group));
  return ranks;
}

std::vector<int> Level::column(int column) const {
  std::vector<int> ranks;
  for (int group = 0; group < groups_; ++group) ranks.push_back(begin(group) + column);
  return ranks;
}

}  // namespace cohort
