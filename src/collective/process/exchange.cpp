#include "collective/process/exchange.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "base/fail.h"
#include "base/kernels/kernels.h"
#include "base/slices.h"

namespace cohort {

namespace {

// Up to here another step costs more than the bytes.
constexpr int64_t kSmallBytes = 16 << 10;

// Gives up what is under way when an error leaves the function, before the buffers do.
class DropOnError {
 public:
  explicit DropOnError(Wire& wire) : wire_(wire), before_(std::uncaught_exceptions()) {}
  DropOnError(const DropOnError&) = delete;
  DropOnError& operator=(const DropOnError&) = delete;
  ~DropOnError() {
    if (std::uncaught_exceptions() > before_) wire_.drop();
  }

 private:
  Wire& wire_;
  int before_;
};

// dst = the sources, added in their order.
void add_up(torch::Tensor& dst, const std::vector<torch::Tensor>& sources) {
  if (kernels::has_kernels(dst.scalar_type())) {
    std::vector<const void*> pointers;
    for (const torch::Tensor& source : sources) pointers.push_back(source.data_ptr());
    kernels::sum_into(dst.data_ptr(), pointers.data(), static_cast<int>(sources.size()), dst.numel(),
                      dst.scalar_type());
    return;
  }
  torch::Tensor sum = sources.front().clone();
  for (std::size_t i = 1; i < sources.size(); ++i) sum.add_(sources[i]);
  dst.copy_(sum);
}

void wait_all(Wire& wire, const std::vector<Wire::Ticket>& tickets) {
  for (const Wire::Ticket ticket : tickets) wire.wait(ticket);
}

// The other ranks, beginning with the next one, so that not all send to the same rank at once.
std::vector<int> others(const Wire& wire) {
  std::vector<int> ranks;
  for (int step = 1; step < wire.size(); ++step) ranks.push_back((wire.rank() + step) % wire.size());
  return ranks;
}

void sum_whole(Wire& wire, torch::Tensor& flat) {
  std::vector<torch::Tensor> parts(static_cast<std::size_t>(wire.size()), flat);
  const DropOnError guard(wire);
  std::vector<Wire::Ticket> tickets;
  for (const int other : others(wire)) {
    torch::Tensor& part = parts[static_cast<std::size_t>(other)] = at::empty_like(flat);
    tickets.push_back(wire.receive(other, bytes_of(part)));
  }
  for (const int other : others(wire)) tickets.push_back(wire.send(other, bytes_of(flat)));
  wait_all(wire, tickets);
  add_up(flat, parts);
}

void sum_by_slices(Wire& wire, torch::Tensor& flat) {
  const auto slice = [&](int rank) {
    const Slice part = slice_of(flat.numel(), rank, wire.size());
    return flat.narrow(0, part.begin, part.size());
  };
  torch::Tensor mine = slice(wire.rank());
  std::vector<torch::Tensor> parts(static_cast<std::size_t>(wire.size()), mine);
  const DropOnError guard(wire);
  std::vector<Wire::Ticket> tickets;
  for (const int other : others(wire)) {
    torch::Tensor& part = parts[static_cast<std::size_t>(other)] = at::empty_like(mine);
    if (mine.numel() > 0) tickets.push_back(wire.receive(other, bytes_of(part)));
  }
  for (const int other : others(wire)) {
    if (slice(other).numel() > 0) tickets.push_back(wire.send(other, bytes_of(slice(other))));
  }
  wait_all(wire, tickets);
  add_up(mine, parts);

  tickets.clear();
  for (const int other : others(wire)) {
    if (slice(other).numel() > 0) tickets.push_back(wire.receive(other, bytes_of(slice(other))));
  }
  for (const int other : others(wire)) {
    if (mine.numel() > 0) tickets.push_back(wire.send(other, bytes_of(mine)));
  }
  wait_all(wire, tickets);
}

}  // namespace

void exchange_sum(Wire& wire, torch::Tensor& flat) {
  if (flat.numel() == 0) return;
  // Between two ranks slices are as many bytes in one step more.
  const bool whole = static_cast<int64_t>(flat.nbytes()) <= kSmallBytes || wire.size() == 2;
  whole ? sum_whole(wire, flat) : sum_by_slices(wire, flat);
}

void exchange_broadcast(Wire& wire, std::span<std::byte> bytes, int root) {
  if (bytes.empty()) return;
  const int size = wire.size();
  const int me = (wire.rank() - root + size) % size;  // counted from the root
  const auto rank_of = [&](int relative) { return (relative + root) % size; };
  int reach = 1;
  while (reach < size) reach *= 2;
  // My parent differs from me in my lowest bit; my children are below that bit.
  int bit = reach;
  const DropOnError guard(wire);
  if (me != 0) {
    bit = me & -me;
    wire.wait(wire.receive(rank_of(me - bit), bytes));
  }
  std::vector<Wire::Ticket> tickets;
  for (bit /= 2; bit > 0; bit /= 2) {
    if (me + bit < size) tickets.push_back(wire.send(rank_of(me + bit), bytes));
  }
  wait_all(wire, tickets);
}

void exchange_meet(Wire& wire) {
  const std::byte here{};
  std::vector<std::byte> there(static_cast<std::size_t>(wire.size()));
  const DropOnError guard(wire);
  std::vector<Wire::Ticket> tickets;
  for (const int other : others(wire))
    tickets.push_back(wire.receive(other, {&there[static_cast<std::size_t>(other)], 1}));
  for (const int other : others(wire)) tickets.push_back(wire.send(other, {&here, 1}));
  wait_all(wire, tickets);
}

void require_rows(const torch::Tensor& own, const std::vector<int64_t>& rows) {
  int64_t bytes = static_cast<int64_t>(own.element_size());
  for (const int64_t size : own.sizes().slice(1)) bytes *= size;
  int64_t total = 0;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    if (rows[rank] >= 0 && !__builtin_add_overflow(total, rows[rank], &total)) continue;
    fail<DataLoss>("[collective] all_gather: rank ", rank, " says that it has ", rows[rank], " rows");
  }
  if (!__builtin_mul_overflow(total, std::max<int64_t>(bytes, 1), &total)) return;
  fail<DataLoss>("[collective] all_gather: the ranks say that they have ", rows, " rows of ", bytes, " bytes");
}

std::vector<torch::Tensor> exchange_gather(Wire& wire, const torch::Tensor& own, const std::vector<int64_t>& rows) {
  std::vector<torch::Tensor> parts;
  std::vector<int64_t> shape = own.sizes().vec();
  for (const int64_t count : rows) {
    shape[0] = count;
    parts.push_back(at::empty(shape, own.options()));
  }
  const DropOnError guard(wire);
  std::vector<Wire::Ticket> tickets;
  for (const int other : others(wire)) {
    const torch::Tensor& part = parts[static_cast<std::size_t>(other)];
    if (part.numel() > 0) tickets.push_back(wire.receive(other, bytes_of(part)));
  }
  for (const int other : others(wire)) {
    if (own.numel() > 0) tickets.push_back(wire.send(other, bytes_of(own)));
  }
  parts[static_cast<std::size_t>(wire.rank())].copy_(own);
  wait_all(wire, tickets);
  return parts;
}

}  // namespace cohort
