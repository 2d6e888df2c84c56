#include "collective/algorithms/exchange_by_levels.h"

#include <ATen/Functions.h>

#include <numeric>

#include "base/slices.h"
#include "collective/algorithms/cross_device_sum.h"
#include "collective/algorithms/levels.h"

namespace cohort {

namespace {

using Tensors = std::vector<torch::Tensor>;

// A rank's place in a level, and the others of its group and of its column.
class PlaceInLevel {
 public:
  PlaceInLevel(const Peers& peers, Levels levels)
      : level_(peers.size(), levels.front()),
        group_(level_.group_of(peers.rank())),
        index_(level_.index_of(peers.rank())),
        peers_(peers),
        levels_(levels.subspan(1)) {}

  const Level& level() const { return level_; }
  int index() const { return index_; }
  std::size_t members() const { return static_cast<std::size_t>(level_.members(group_)); }
  std::size_t columns() const { return static_cast<std::size_t>(level_.columns()); }
  // Returns whether this rank acts for a column.
  bool acts() const { return index_ < level_.columns(); }
  // Returns the place in its group of the member that another one acts for; -1 if this rank neither is one nor acts for
  // one.
  int helped() const {
    const bool one_more = members() > columns();
    return one_more && (index_ == 0 || !acts()) ? level_.columns() : -1;
  }
  // Returns the ranks that this rank's column acts for, of all groups, ascending.
  std::vector<int> served(int column) const {
    std::vector<int> ranks;
    for (int group = 0; group < level_.groups(); ++group) {
      ranks.push_back(level_.begin(group) + column);
      if (column == 0 && level_.members(group) > level_.columns()) ranks.push_back(ranks.back() + level_.columns());
    }
    return ranks;
  }
  Peers near() const { return peers_.among(level_.group(group_)); }
  Peers along() const { return peers_.among(level_.column(index_)); }
  Levels next_levels() const { return levels_; }

 private:
  Level level_;
  int group_;
  int index_;
  const Peers& peers_;
  Levels levels_;
};

// Returns the sum of what the members of a group have brought, in which it goes on.
torch::Tensor sum_of(const Tensors& parts, const torch::Tensor& own) {
  torch::Tensor sum = own.scalar_type() == sum_dtype(own.scalar_type())
                          ? own
                          : at::empty(own.sizes(), own.options().dtype(sum_dtype(own.scalar_type())));
  if (sum.is_same(own)) {
    add_up(sum, parts);
    return sum;
  }
  sum.copy_(parts.front());
  for (std::size_t i = 1; i < parts.size(); ++i) sum.add_(parts[i]);
  return sum;
}

// Sends out[k] to the member that acts for column k and returns the sum of what all have sent to this one, in their
// order, in the memory of `mine` where that is of the dtype of sums; `mine` itself where this rank acts for none.
torch::Tensor sum_of_group(const PlaceInLevel& place, const Tensors& out, const torch::Tensor& mine) {
  const auto index = static_cast<std::size_t>(place.index());
  const torch::Tensor none = mine.narrow(0, 0, 0);
  Tensors in(place.members(), none);
  Tensors sent = out;
  sent.resize(place.members(), none);
  for (std::size_t i = 0; place.acts() && i < in.size(); ++i) in[i] = i == index ? mine : at::empty_like(mine);
  exchange_parts(place.near(), in, sent);
  return place.acts() && mine.numel() > 0 ? sum_of(in, mine) : mine;
}

int64_t total(const std::vector<int64_t>& sizes, const std::vector<int>& ranks) {
  const auto add = [&](int64_t sum, int rank) { return sum + sizes[static_cast<std::size_t>(rank)]; };
  return std::accumulate(ranks.begin(), ranks.end(), int64_t{0}, add);
}

// Returns for each group how much the ranks of a column have there.
std::vector<int64_t> by_group(const PlaceInLevel& place, const std::vector<int64_t>& sizes,
                              const std::vector<int>& ranks) {
  std::vector<int64_t> sums(static_cast<std::size_t>(place.level().groups()));
  for (const int rank : ranks) {
    sums[static_cast<std::size_t>(place.level().group_of(rank))] += sizes[static_cast<std::size_t>(rank)];
  }
  return sums;
}

}  // namespace

// Each column adds up a slice, or all of a tensor that is small.
void sum_by_levels(const Peers& peers, torch::Tensor& flat, Levels levels) {
  const PlaceInLevel place(peers, levels);
  if (place.level().groups() == 1) return exchange_sum(peers, flat);
  const bool whole = is_small(flat);
  Tensors slices(place.members(), flat.narrow(0, 0, 0));
  for (std::size_t k = 0; k < place.columns(); ++k) {
    const Slice slice =
        whole ? Slice{0, flat.numel()} : slice_of(flat.numel(), static_cast<int>(k), place.level().columns());
    slices[k] = flat.narrow(0, slice.begin, slice.size());
  }
  torch::Tensor mine = slices[static_cast<std::size_t>(place.index())];
  torch::Tensor sum = sum_of_group(place, slices, mine);
  if (place.acts()) {
    exchange_sum(place.along(), sum, place.next_levels());
    if (!sum.is_same(mine)) mine.copy_(sum);
  }
  if (!whole) return exchange_parts(place.near(), slices, Tensors(place.members(), mine));
  // All that act have the sum already.
  if (place.helped() < 0) return;
  Tensors in(place.members(), flat.narrow(0, 0, 0));
  Tensors out = in;
  (place.acts() ? out[static_cast<std::size_t>(place.helped())] : in.front()) = flat;
  exchange_parts(place.near(), in, out);
}

torch::Tensor sum_pieces_by_levels(const Peers& peers, const Tensors& pieces, Levels levels) {
  const PlaceInLevel place(peers, levels);
  if (place.level().groups() == 1) return exchange_pieces(peers, pieces);
  std::vector<int64_t> sizes;
  for (const torch::Tensor& piece : pieces) sizes.push_back(piece.numel());
  const torch::Tensor& own = pieces[static_cast<std::size_t>(peers.rank())];
  const auto flat = [&](int rank) { return pieces[static_cast<std::size_t>(rank)].view({-1}); };
  Tensors out;
  for (std::size_t k = 0; k < place.columns(); ++k) {
    Tensors parts;
    for (const int rank : place.served(static_cast<int>(k))) parts.push_back(flat(rank));
    out.push_back(at::cat(parts));
  }
  const torch::Tensor mine =
      place.acts() ? out[static_cast<std::size_t>(place.index())] : own.view({-1}).narrow(0, 0, 0);
  torch::Tensor sum = sum_of_group(place, out, mine);
  if (place.acts()) {
    sum = exchange_pieces(place.along(), sum.split_with_sizes(by_group(place, sizes, place.served(place.index()))),
                          place.next_levels())
              .to(own.scalar_type());
  }
  if (place.helped() >= 0) {
    Tensors in(place.members(), sum.narrow(0, 0, 0));
    Tensors sent = in;
    if (place.acts()) {
      sent[static_cast<std::size_t>(place.helped())] = sum.narrow(0, own.numel(), sum.numel() - own.numel());
    } else {
      sum = at::empty({own.numel()}, own.options());
      in.front() = sum;
    }
    exchange_parts(place.near(), in, sent);
  }
  return sum.narrow(0, 0, own.numel()).view(own.sizes());
}

Tensors gather_by_levels(const Peers& peers, const torch::Tensor& own, const std::vector<int64_t>& rows,
                         Levels levels) {
  const PlaceInLevel place(peers, levels);
  if (place.level().groups() == 1) return exchange_gather(peers, own, rows);
  const torch::Tensor none = own.narrow(0, 0, 0);
  const auto buffer = [&](int64_t count) {
    std::vector<int64_t> shape = own.sizes().vec();
    shape[0] = count;
    return at::empty(shape, own.options());
  };
  torch::Tensor mine = own;  // of the ranks of this group that this one acts for
  if (place.helped() >= 0) {
    Tensors in(place.members(), none);
    Tensors out = in;
    const auto more = static_cast<std::size_t>(place.helped());
    if (place.acts()) {
      in[more] = buffer(rows[static_cast<std::size_t>(peers.rank() + place.helped() - place.index())]);
    } else {
      out.front() = own;
    }
    exchange_parts(place.near(), in, out);
    if (place.acts()) mine = at::cat({own, in[more]});
  }
  Tensors columns(place.members(), none);
  for (std::size_t k = 0; k < place.columns(); ++k) {
    columns[k] = buffer(total(rows, place.served(static_cast<int>(k))));
  }
  torch::Tensor column = none;
  if (place.acts()) {
    column = at::cat(
        exchange_gather(place.along(), mine, by_group(place, rows, place.served(place.index())), place.next_levels()));
    columns[static_cast<std::size_t>(place.index())] = column;
  }
  exchange_parts(place.near(), columns, Tensors(place.members(), column));
  Tensors all(rows.size());
  for (std::size_t k = 0; k < place.columns(); ++k) {
    int64_t at = 0;
    for (const int rank : place.served(static_cast<int>(k))) {
      const int64_t count = rows[static_cast<std::size_t>(rank)];
      all[static_cast<std::size_t>(rank)] = columns[k].narrow(0, at, count);
      at += count;
    }
  }
  return all;
}

}  // namespace cohort
