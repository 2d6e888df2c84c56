// Levels: ranks in groups, the groups in groups, and so on, so that in a collective a rank exchanges messages with few
// others instead of with all. Arithmetic alone.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace cohort {

// Returns how many ranks the groups of each level have, from the innermost on; the outermost level, which joins what is
// left, is none of them, so that an empty list is that all ranks exchange messages with all others.
//   direct        none
//   hierarchical  two levels of about the same size
//   tree          pairs of pairs: recursive halving and doubling (Thakur, Rabenseifner, Gropp, 2005)
//   auto          direct up to kDirectRanks, and from there on what takes the least time by the model below
// InvalidArgument: another name.
std::vector<int> levels_named(std::string_view name, int ranks);
inline constexpr int kDirectRanks = 64;

// The costs of docs/performance.md, in seconds: alpha of a message, for the cores of both ends, latency of the network.
struct MessageCosts {
  double message = 29.1e-6;
  double latency = 20e-6;
};
// Returns the seconds that the messages of one phase (everybody announces, or gives slices, or gets them) take a rank.
double seconds_of_phase(int ranks, const std::vector<int>& levels, const MessageCosts& costs = {});

// One level: ranks 0 to n - 1 in consecutive groups. The members of a group are of columns, the same number in each
// group; the k-th members of all groups are column k. A group that is larger has a member more, for whom its first
// member does what goes beyond the group.
class Level {
 public:
  // There are as many groups as have at least `group_size` ranks, and one if none has.
  Level(int ranks, int group_size);

  int groups() const { return groups_; }
  int columns() const { return ranks_ / groups_; }
  int begin(int group) const { return static_cast<int>(static_cast<int64_t>(group) * ranks_ / groups_); }
  int members(int group) const { return begin(group + 1) - begin(group); }
  int group_of(int rank) const;
  // Returns the place of a rank in its group.
  int index_of(int rank) const { return rank - begin(group_of(rank)); }
  // Returns the ranks of a group, and of a column, ascending.
  std::vector<int> group(int group) const;
  std::vector<int> column(int column) const;

 private:
  int ranks_;
  int groups_;
};

}  // namespace cohort
