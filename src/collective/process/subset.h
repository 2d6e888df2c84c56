// Some ranks of a wire as a wire of their own.
#pragma once

#include <algorithm>
#include <vector>

#include "collective/process/wire.h"

namespace cohort {

class Subset final : public Wire {
 public:
  // `ranks` of `wire`, this one among them, which must outlive this. Messages of both must not be under way at once.
  Subset(Wire& wire, const std::vector<int>& ranks)
      : wire_(wire),
        ranks_(ranks),
        rank_(static_cast<int>(std::find(ranks.begin(), ranks.end(), wire.rank()) - ranks.begin())) {}

  std::string_view name() const override { return wire_.name(); }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }

  Ticket send(int to, std::span<const std::byte> bytes) override { return wire_.send(outer(to), bytes); }
  Ticket receive(int from, std::span<std::byte> bytes) override { return wire_.receive(outer(from), bytes); }
  void wait(Ticket ticket) override { wire_.wait(ticket); }
  void drop() noexcept override { wire_.drop(); }
  void abort() noexcept override { wire_.abort(); }

 private:
  int outer(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  Wire& wire_;
  const std::vector<int>& ranks_;
  int rank_;
};

}  // namespace cohort
