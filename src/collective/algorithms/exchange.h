// Collectives made of messages, the same for all transports. All ranks call the same with the same sizes. On an error
// the messages under way are given up. Messages are bytes, so pointers into CPU tensors are taken.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "collective/transport.h"

namespace cohort {

// Some ranks of a transport, this one among them, which are numbered from 0 here. The transport must outlive this.
class Peers {
 public:
  // Takes all ranks of the transport.
  explicit Peers(Transport& transport) : transport_(transport), rank_(transport.rank()), size_(transport.size()) {}
  Peers(Transport& transport, std::vector<int> ranks)
      : transport_(transport),
        ranks_(std::move(ranks)),
        rank_(static_cast<int>(std::find(ranks_.begin(), ranks_.end(), transport.rank()) - ranks_.begin())),
        size_(static_cast<int>(ranks_.size())) {}

  // Returns some of these, this one among them.
  Peers among(std::vector<int> ranks) const {
    for (int& rank : ranks) rank = outer(rank);
    return {transport_, std::move(ranks)};
  }

  int rank() const { return rank_; }
  int size() const { return size_; }

  std::unique_ptr<Message> send(int to, std::span<const std::byte> bytes) const {
    return transport_.send(outer(to), bytes, Transport::kCollectives);
  }
  std::unique_ptr<Message> receive(int from, std::span<std::byte> bytes) const {
    return transport_.receive(outer(from), bytes, Transport::kCollectives);
  }

 private:
  int outer(int rank) const { return ranks_.empty() ? rank : ranks_[static_cast<std::size_t>(rank)]; }

  Transport& transport_;
  std::vector<int> ranks_;  // empty: all
  int rank_;
  int size_;
};

// Returns the memory of a contiguous tensor on the CPU.
inline std::span<std::byte> bytes_of(const torch::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

// The sizes of the groups of each level (levels.h); none: all ranks exchange messages with all others.
using Levels = std::span<const int>;

// Sums over the ranks, in place, in rank order, and by levels in that of the groups: the same bits on every rank, in
// every run and for every way to cut tensors. `flat` is on the CPU, contiguous, of one dimension. Half types travel as
// they are, are added up in float32, in which the sums of inner levels travel, and the sum is rounded. Small tensors go
// whole to every rank (one step); of large ones each rank adds up a slice and sends it to all, as in the ring
// all-reduce (Patarasuk and Yuan, 2009) but in two steps.
void exchange_sum(const Peers& peers, torch::Tensor& flat, Levels levels = {});

// Sends pieces[r] to rank r and returns the sum, of the same bits, of the pieces that all ranks have for this one, its
// own included. Contiguous, on the CPU; pieces[r] has the same size on all ranks.
torch::Tensor exchange_pieces(const Peers& peers, const std::vector<torch::Tensor>& pieces, Levels levels = {});

// Copies the root's bytes to all ranks, along a binomial tree.
void exchange_broadcast(const Peers& peers, std::span<std::byte> bytes, int root);

// Receives into in[r] from every other rank r and sends it out[r]; empty tensors need no message. Contiguous, on the
// CPU; out[r] has as many bytes as that rank's in[] for this one.
void exchange_parts(const Peers& peers, const std::vector<torch::Tensor>& in, const std::vector<torch::Tensor>& out);

// Returns whether another step costs more than sending all of a tensor to everybody.
bool is_small(const torch::Tensor& tensor);

// Makes dst the sum of the sources, added in their order.
void add_up(torch::Tensor& dst, const std::vector<torch::Tensor>& sources);

// Returns when all ranks have called it.
void exchange_meet(const Peers& peers);

// Throws DataLoss, which names the operation, if the rows that the ranks say to have are no numbers of rows, or more
// than fit in memory with those of `own`. The numbers come from other processes.
void require_rows(std::string_view what, const torch::Tensor& own, const std::vector<int64_t>& rows);

// Returns every rank's tensor, in rank order, which are alike but for dimension 0: rank r's has rows[r]. Contiguous, on
// the CPU.
std::vector<torch::Tensor> exchange_gather(const Peers& peers, const torch::Tensor& own,
                                           const std::vector<int64_t>& rows, Levels levels = {});

// Sends parts[r] to rank r and returns what each rank sends to this one: rank r's has rows[r]. All are alike but for
// dimension 0, contiguous, on the CPU.
std::vector<torch::Tensor> exchange_all(const Peers& peers, const std::vector<torch::Tensor>& parts,
                                        const std::vector<int64_t>& rows);

}  // namespace cohort
