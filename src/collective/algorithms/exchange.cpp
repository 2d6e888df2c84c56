// Collectives made of messages. They take pointers into CPU tensors, because messages are bytes.
#include "collective/algorithms/exchange.h"

#include <ATen/Functions.h>

#include "base/fail.h"
#include "base/slices.h"
#include "collective/algorithms/cross_device_sum.h"
#include "collective/algorithms/exchange_by_levels.h"
#include "ops/kernels/kernels.h"

namespace cohort {

namespace {

// Up to here another step costs more than the bytes.
constexpr int64_t kSmallBytes = 16 << 10;

using Messages = std::vector<std::unique_ptr<Message>>;

}  // namespace

void add_up(torch::Tensor& dst, const std::vector<torch::Tensor>& sources) {
  if (kernels::has_kernels(dst.scalar_type())) {
    std::vector<const void*> pointers;
    for (const torch::Tensor& source : sources) pointers.push_back(source.data_ptr());
    kernels::sum_into(dst.data_ptr(), pointers.data(), static_cast<int>(sources.size()), dst.numel(),
                      dst.scalar_type());
    return;
  }
  torch::Tensor sum = sources.front().to(sum_dtype(dst.scalar_type()), /*non_blocking=*/false, /*copy=*/true);
  for (std::size_t i = 1; i < sources.size(); ++i) sum.add_(sources[i]);
  dst.copy_(sum);
}

bool is_small(const torch::Tensor& tensor) {
  return static_cast<int64_t>(tensor.nbytes()) <= kSmallBytes;
}

namespace {

void wait_all(const Messages& messages) {
  for (const auto& message : messages) message->wait();
}

// Returns the other ranks, beginning with the next one, so that not all send to the same rank at once.
std::vector<int> others(const Peers& peers) {
  std::vector<int> ranks;
  for (int step = 1; step < peers.size(); ++step) ranks.push_back((peers.rank() + step) % peers.size());
  return ranks;
}

}  // namespace

void exchange_parts(const Peers& peers, const std::vector<torch::Tensor>& in, const std::vector<torch::Tensor>& out) {
  Messages messages;
  for (const int other : others(peers)) {
    const torch::Tensor& part = in[static_cast<std::size_t>(other)];
    if (part.numel() > 0) messages.push_back(peers.receive(other, bytes_of(part)));
  }
  for (const int other : others(peers)) {
    const torch::Tensor& part = out[static_cast<std::size_t>(other)];
    if (part.numel() > 0) messages.push_back(peers.send(other, bytes_of(part)));
  }
  wait_all(messages);
}

namespace {

// Returns a buffer like `mine` for every rank's part of the sum; this rank's is `mine` itself.
std::vector<torch::Tensor> buffers_like(const Peers& peers, const torch::Tensor& mine) {
  std::vector<torch::Tensor> parts;
  for (int r = 0; r < peers.size(); ++r) parts.push_back(r == peers.rank() ? mine : at::empty_like(mine));
  return parts;
}

}  // namespace

void exchange_sum(const Peers& peers, torch::Tensor& flat, Levels levels) {
  if (flat.numel() == 0) return;
  if (!levels.empty()) return sum_by_levels(peers, flat, levels);
  // Between two ranks slices are as many bytes in one step more.
  if (is_small(flat) || peers.size() == 2) {
    const std::vector<torch::Tensor> parts = buffers_like(peers, flat);
    exchange_parts(peers, parts, std::vector<torch::Tensor>(parts.size(), flat));
    return add_up(flat, parts);
  }
  std::vector<torch::Tensor> slices;
  for (int r = 0; r < peers.size(); ++r) {
    const Slice slice = slice_of(flat.numel(), r, peers.size());
    slices.push_back(flat.narrow(0, slice.begin, slice.size()));
  }
  torch::Tensor mine = slices[static_cast<std::size_t>(peers.rank())];
  const std::vector<torch::Tensor> parts = buffers_like(peers, mine);
  exchange_parts(peers, parts, slices);
  add_up(mine, parts);
  exchange_parts(peers, slices, std::vector<torch::Tensor>(slices.size(), mine));
}

torch::Tensor exchange_pieces(const Peers& peers, const std::vector<torch::Tensor>& pieces, Levels levels) {
  if (!levels.empty()) return sum_pieces_by_levels(peers, pieces, levels);
  const torch::Tensor& mine = pieces[static_cast<std::size_t>(peers.rank())];
  const std::vector<torch::Tensor> parts = buffers_like(peers, mine);
  exchange_parts(peers, parts, pieces);
  torch::Tensor sum = at::empty_like(mine);
  if (sum.numel() > 0) add_up(sum, parts);
  return sum;
}

void exchange_broadcast(const Peers& peers, std::span<std::byte> bytes, int root) {
  if (bytes.empty()) return;
  const int size = peers.size();
  const int me = (peers.rank() - root + size) % size;  // counted from the root
  const auto rank_of = [&](int relative) { return (relative + root) % size; };
  int reach = 1;
  while (reach < size) reach *= 2;
  // My parent differs from me in my lowest bit; my children are below that bit.
  int bit = reach;
  if (me != 0) {
    bit = me & -me;
    peers.receive(rank_of(me - bit), bytes)->wait();
  }
  Messages messages;
  for (bit /= 2; bit > 0; bit /= 2) {
    if (me + bit < size) messages.push_back(peers.send(rank_of(me + bit), bytes));
  }
  wait_all(messages);
}

void exchange_meet(const Peers& peers) {
  const std::byte here{};
  std::vector<std::byte> there(static_cast<std::size_t>(peers.size()));
  Messages messages;
  for (const int other : others(peers)) {
    messages.push_back(peers.receive(other, {&there[static_cast<std::size_t>(other)], 1}));
  }
  for (const int other : others(peers)) messages.push_back(peers.send(other, {&here, 1}));
  wait_all(messages);
}

void require_rows(std::string_view what, const torch::Tensor& own, const std::vector<int64_t>& rows) {
  int64_t bytes = static_cast<int64_t>(own.element_size());
  for (const int64_t size : own.sizes().slice(1)) bytes *= size;
  int64_t total = 0;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    if (rows[rank] >= 0 && !__builtin_add_overflow(total, rows[rank], &total)) continue;
    fail<DataLoss>("[collective] ", what, ": rank ", rank, " says that it has ", rows[rank], " rows");
  }
  if (!__builtin_mul_overflow(total, std::max<int64_t>(bytes, 1), &total)) return;
  fail<DataLoss>("[collective] ", what, ": the ranks say that they have ", rows, " rows of ", bytes, " bytes");
}

std::vector<torch::Tensor> exchange_gather(const Peers& peers, const torch::Tensor& own,
                                           const std::vector<int64_t>& rows, Levels levels) {
  if (!levels.empty()) return gather_by_levels(peers, own, rows, levels);
  return exchange_all(peers, std::vector<torch::Tensor>(rows.size(), own), rows);
}

std::vector<torch::Tensor> exchange_all(const Peers& peers, const std::vector<torch::Tensor>& parts,
                                        const std::vector<int64_t>& rows) {
  std::vector<torch::Tensor> received;
  std::vector<int64_t> shape = parts.front().sizes().vec();
  for (const int64_t count : rows) {
    shape[0] = count;
    received.push_back(at::empty(shape, parts.front().options()));
  }
  exchange_parts(peers, received, parts);
  const auto me = static_cast<std::size_t>(peers.rank());
  received[me].copy_(parts[me]);
  return received;
}

}  // namespace cohort
