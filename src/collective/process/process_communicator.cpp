// All ranks agree on an operation first (agreement.h). Then tensors of a device that has collectives of its own stay
// there; the others are laid out in the host's memory and go by the transport's engine (engine.h), by messages
// (algorithms/exchange.h) or, for gradients within a machine, by common memory (algorithms/shared_sum.h).
#include "collective/process/process_communicator.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <map>

#include "base/fail.h"
#include "base/tracer.h"
#include "cohort/trace.h"
#include "collective/algorithms/cross_device_sum.h"
#include "collective/algorithms/exchange.h"
#include "collective/algorithms/shared_sum.h"
#include "collective/checks.h"
#include "collective/devices/stream_sums.h"
#include "collective/process/engine_calls.h"
#include "device/identity.h"
#include "ops/kernels/kernels.h"

namespace cohort {

namespace {

// Lanes of the messages between two ranks: one each way, then those of the ways that are numbered.
constexpr Transport::Lane kUpwards = 1;
constexpr Transport::Lane kDownwards = 2;
constexpr Transport::Lane kFirstWay = 3;

// Ranks whose tensors are in different memory do not do the same.
std::string place_of(const torch::Tensor& tensor) {
  return tensor.is_cpu() ? "" : c10::str(" on ", tensor.device().type());
}

std::string describe(std::string_view what, std::span<const torch::Tensor> tensors) {
  std::string text(what);
  text += " of ";
  for (const torch::Tensor& tensor : tensors) {
    text += c10::str(&tensor == tensors.data() ? "" : ", ", tensor.scalar_type(), tensor.sizes(), place_of(tensor));
  }
  return text;
}

// Describes what may differ in the size of dimension 0.
std::string describe_ragged(std::string_view what, const torch::Tensor& tensor) {
  std::vector<int64_t> shape = tensor.sizes().vec();
  if (!shape.empty()) shape[0] = -1;
  return c10::str(what, " of ", tensor.scalar_type(), at::IntArrayRef(shape), place_of(tensor));
}

std::vector<int64_t> rows_of(const Agreement::Announcements& all) {
  std::vector<int64_t> rows;
  for (const auto& other : all) rows.push_back(other.numbers[0]);
  return rows;
}

}  // namespace

ProcessCommunicator::ProcessCommunicator(std::unique_ptr<Transport> transport, ProcessGroupOptions options)
    : transport_(std::move(transport)),
      options_(std::move(options)),
      agreement_(*transport_, options_.agreement, [this] { end_waits(); }) {
  self_->group = this;
  if (transport_->engine() == nullptr || options_.agreement.algorithm == "auto") return;
  fail<InvalidArgument>("[collective] ", transport_->name(), ": the algorithm is \"", options_.agreement.algorithm,
                        "\", but ", transport_->name(),
                        " chooses its own; wanted \"auto\", or implementation \"ring\"");
}

ProcessCommunicator::~ProcessCommunicator() {
  const std::lock_guard lock(self_->mutex);
  self_->group = nullptr;
}

void ProcessCommunicator::abort(const std::string& reason) {
  agreement_.abort(reason);
  const std::lock_guard lock(parts_mutex_);
  for (const auto& weak : parts_) {
    const std::shared_ptr<Part> part = weak.lock();
    if (!part) continue;
    const std::lock_guard alive(part->mutex);
    if (part->group != nullptr) part->group->abort(reason);
  }
}

void ProcessCommunicator::end_waits() {
  transport_->abort();
  if (options_.devices) options_.devices->abort("aborted");
}

bool ProcessCommunicator::stays(const torch::Tensor& tensor) const {
  return options_.devices && tensor.device().type() == options_.device_type;
}

StreamSums* ProcessCommunicator::stream_sums(torch::Device device) const {
  if (!options_.devices || device.type() != options_.device_type) return nullptr;
  return dynamic_cast<StreamSums*>(options_.devices.get());
}

// Returns the dtype in which a tensor travels to be reduced. Sums of half types do so as they are, and are added up in
// float32; on the way to a mean they would overflow, or be rounded twice. Of the groups of devices NCCL adds up halves.
torch::ScalarType ProcessCommunicator::travelling(const torch::Tensor& tensor, ReduceOp op) const {
  const torch::ScalarType dtype = tensor.scalar_type();
  if (c10::isIntegralType(dtype, /*includeBool=*/true)) return torch::kLong;
  const bool adds_halves = !stays(tensor) || options_.devices->name() == "nccl";
  return op == ReduceOp::kSum && adds_halves ? dtype : sum_dtype(dtype);
}

// Returns the tensor where it can be sent from, its elements one after the other.
torch::Tensor ProcessCommunicator::ready(const torch::Tensor& tensor) const {
  return (stays(tensor) ? tensor.detach() : tensor.detach().to(torch::kCPU)).contiguous();
}

void ProcessCommunicator::sum(torch::Tensor flat, ReduceOp op) {
  stays(flat) ? options_.devices->all_reduce({&flat, 1}, ReduceOp::kSum)
              : sum_on_host(*transport_, flat, agreement_.levels());
  if (op == ReduceOp::kMean) divide(flat, size());
}

torch::Tensor ProcessCommunicator::shared_zeros(int64_t size, torch::ScalarType dtype, torch::ScalarType sent) {
  std::shared_ptr<SharedSum> shared;
  if (options_.shared_memory && this->size() > 1 && size > 0 && kernels::has_kernels(dtype)) {
    const std::string& machine = options_.machine.empty() ? this_machine() : options_.machine;
    shared = SharedSum::make(*this, machine, c10::str(options_.agreement.name, "/", ++shares_), size, {dtype, sent});
  }
  if (!shared) return torch::zeros({size}, dtype);
  std::erase_if(shared_, [](const auto& old) { return old->unused(); });
  shared_.push_back(shared);
  return shared->tensor();
}

// Returns what one of the tensors is shared by; null when it is a tensor of this process alone.
const SharedSum* ProcessCommunicator::find_shared(std::span<const torch::Tensor> tensors) const {
  if (tensors.size() != 1) return nullptr;
  const auto has_it = [&](const auto& shared) { return shared->offset_of(tensors.front()) >= 0; };
  const auto found = std::find_if(shared_.begin(), shared_.end(), has_it);
  return found == shared_.end() ? nullptr : found->get();
}

void ProcessCommunicator::sum_shared(const SharedSum& shared, torch::Tensor tensor, ReduceOp op) {
  const int64_t offset = shared.offset_of(tensor);
  agreement_.perform(c10::str("all_reduce ", to_string(op), " of ", tensor.scalar_type(), "[", tensor.numel(),
                              "] in shared memory ", shared.name(), " at ", offset),
                     {}, [&](const auto&) {
                       shared.sum(*transport_, offset, tensor.numel(), options_.agreement.algorithm);
                       if (op == ReduceOp::kMean) divide(tensor, size());
                     });
}

bool ProcessCommunicator::adds_in_memory(const torch::Tensor& tensor) const {
  return find_shared({&tensor, 1}) != nullptr;
}

// Waits for the collectives that were begun before this one.
void ProcessCommunicator::settle() {
  refuse_in_trace("a collective");
  queues_.collectives().settle();
}

void ProcessCommunicator::all_reduce(std::span<torch::Tensor> tensors, ReduceOp op) {
  const TraceSpan span("communication", "all_reduce");
  for (const torch::Tensor& tensor : tensors) require_dense("all_reduce", tensor);
  if (size() == 1) return;
  settle();
  if (const SharedSum* const shared = find_shared(tensors)) return sum_shared(*shared, tensors.front().detach(), op);
  agreement_.perform(describe(c10::str("all_reduce ", to_string(op)), tensors), {}, [&](const auto&) {
    std::map<std::pair<bool, torch::ScalarType>, std::vector<torch::Tensor>> groups;  // one message each
    for (torch::Tensor& tensor : tensors) groups[{stays(tensor), travelling(tensor, op)}].push_back(tensor.detach());
    for (auto& [kind, members] : groups) sum_together(members, kind.second, op);
  });
}

void ProcessCommunicator::sum_together(std::vector<torch::Tensor>& tensors, torch::ScalarType dtype, ReduceOp op) {
  torch::Tensor& only = tensors.front();
  const bool in_place = tensors.size() == 1 && (only.is_cpu() || stays(only)) && only.is_contiguous();
  if (in_place && only.scalar_type() == dtype) return sum(only.view({-1}), op);
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& tensor : tensors) parts.push_back(ready(tensor).to(dtype).view({-1}));
  torch::Tensor flat = at::cat(parts);
  sum(flat, op);
  int64_t at = 0;
  for (torch::Tensor& tensor : tensors) {
    tensor.copy_(flat.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
}

void ProcessCommunicator::broadcast(std::span<torch::Tensor> tensors, int root) {
  const TraceSpan span("communication", "broadcast");
  require_root(*this, root);
  for (const torch::Tensor& tensor : tensors) require_dense("broadcast", tensor);
  if (size() == 1) return;
  settle();
  agreement_.perform(describe(c10::str("broadcast from ", rank_name(root)), tensors), {}, [&](const auto&) {
    for (torch::Tensor& tensor : tensors) {
      torch::Tensor flat = ready(tensor);
      stays(flat) ? options_.devices->broadcast({&flat, 1}, root) : broadcast_on_host(*transport_, flat, root);
      if (rank() != root && !same_memory(flat, tensor)) tensor.detach().copy_(flat);
    }
  });
}

std::vector<torch::Tensor> ProcessCommunicator::all_gather(const torch::Tensor& tensor) {
  const TraceSpan span("communication", "all_gather");
  require_dense("all_gather", tensor);
  if (size() == 1) return {tensor.detach().clone()};
  settle();
  const bool scalar = tensor.dim() == 0;
  const torch::Tensor own = ready(scalar ? tensor.unsqueeze(0) : tensor);
  std::vector<torch::Tensor> parts;
  agreement_.perform(describe_ragged("all_gather", tensor), {own.size(0)}, [&](const auto& all) {
    const std::vector<int64_t> rows = rows_of(all);
    require_rows("all_gather", own, rows);
    parts = stays(own) ? gather_on_devices(own, rows) : gather_on_host(*transport_, own, rows, agreement_.levels());
    for (torch::Tensor& part : parts) part = (scalar ? part.squeeze(0) : part).to(tensor.device());
  });
  return parts;
}

// All bring as many rows as the one with the most.
std::vector<torch::Tensor> ProcessCommunicator::gather_on_devices(const torch::Tensor& own,
                                                                  const std::vector<int64_t>& rows) {
  std::vector<int64_t> shape = own.sizes().vec();
  shape[0] = *std::max_element(rows.begin(), rows.end());
  const torch::Tensor padded = at::zeros(shape, own.options());
  padded.narrow(0, 0, own.size(0)).copy_(own);
  std::vector<torch::Tensor> parts = options_.devices->all_gather(padded);
  for (std::size_t r = 0; r < rows.size(); ++r) parts[r] = parts[r].narrow(0, 0, rows[r]).contiguous();
  return parts;
}

torch::Tensor ProcessCommunicator::reduce_scatter(const torch::Tensor& tensor, ReduceOp op) {
  const TraceSpan span("communication", "reduce_scatter");
  require_pieces(*this, tensor);
  if (size() == 1) return tensor.detach().clone(torch::MemoryFormat::Contiguous);
  settle();
  torch::Tensor sum;
  agreement_.perform(describe(c10::str("reduce_scatter ", to_string(op)), {&tensor, 1}), {}, [&](const auto&) {
    sum = sum_pieces(tensor.detach().to(travelling(tensor, op)).tensor_split(size(), 0));
    if (op == ReduceOp::kMean) divide(sum, size());
  });
  return sum.to(tensor.scalar_type());
}

torch::Tensor ProcessCommunicator::reduce_pieces(const std::vector<torch::Tensor>& pieces) {
  const TraceSpan span("communication", "reduce_scatter");
  if (size() == 1) return pieces.front().clone();
  settle();
  const torch::ScalarType dtype = pieces.front().scalar_type();
  torch::Tensor sum;
  agreement_.perform(describe("reduce_scatter SUM in pieces", pieces), {}, [&](const auto&) {
    std::vector<torch::Tensor> sent;
    for (const torch::Tensor& piece : pieces) sent.push_back(piece.to(travelling(piece, ReduceOp::kSum)));
    sum = sum_pieces(sent);
  });
  return sum.to(dtype);
}

// Devices cut a tensor into equal pieces; others go through the host's memory.
torch::Tensor ProcessCommunicator::sum_pieces(const std::vector<torch::Tensor>& pieces) {
  const torch::Tensor& first = pieces.front();
  const auto same = [&](const torch::Tensor& piece) { return piece.sizes() == first.sizes(); };
  if (stays(first) && std::all_of(pieces.begin(), pieces.end(), same)) {
    return options_.devices->reduce_scatter(at::cat(pieces), ReduceOp::kSum);
  }
  std::vector<torch::Tensor> on_host;
  for (const torch::Tensor& piece : pieces) on_host.push_back(piece.to(torch::kCPU).contiguous());
  return sum_pieces_on_host(*transport_, on_host, agreement_.levels()).to(first.device());
}

std::vector<torch::Tensor> ProcessCommunicator::all_to_all(std::span<const torch::Tensor> parts) {
  const TraceSpan span("communication", "all_to_all");
  require_parts(*this, parts);
  if (size() == 1) return {parts.front().detach().clone()};
  settle();
  std::vector<torch::Tensor> own;
  std::vector<Numbers> rows_for;
  for (const torch::Tensor& part : parts) {
    own.push_back(ready(part));
    rows_for.push_back({part.size(0)});
  }
  std::vector<torch::Tensor> received;
  agreement_.perform_with_each(describe_ragged("all_to_all", parts.front()), rows_for, [&](const auto& all) {
    const std::vector<int64_t> rows = rows_of(all);
    require_rows("all_to_all", own.front(), rows);
    received = stays(own.front()) ? options_.devices->all_to_all(own) : exchange_all(Peers(*transport_), own, rows);
    for (torch::Tensor& part : received) part = part.to(parts.front().device());
  });
  return received;
}

void ProcessCommunicator::barrier() {
  const TraceSpan span("communication", "barrier");
  if (size() == 1) return;
  settle();
  agreement_.perform("barrier", {}, [](const auto&) {});  // the agreement itself is the barrier
}

Agreement::Exchange ProcessCommunicator::exchange_with(std::string_view call, Transport::Lane lane,
                                                       const torch::Tensor& tensor, Peer peer) const {
  const std::string message = describe_message(tensor, peer.tag) + place_of(tensor);
  const std::string way = c10::str(call, " of ", message, call == "send" ? " to " : " from ", rank_name(peer.rank));
  // Two ends that both send, or both receive, differ in who is the sender.
  const int sender = call == "send" ? rank() : peer.rank;
  return {.peer = peer.rank, .lane = lane, .what = way, .message = c10::str(message, " from rank ", sender)};
}

void ProcessCommunicator::send(const torch::Tensor& tensor, Peer to) {
  const TraceSpan span("communication", "send");
  require_peer(*this, "send", tensor, to);
  queues_.messages(to.rank, /*sends=*/true).settle();
  const torch::Tensor own = ready(tensor);
  const Transport::Lane lane = rank() < to.rank ? kUpwards : kDownwards;
  agreement_.exchange(exchange_with("send", lane, tensor, to), [&] {
    if (stays(own)) return options_.devices->send(own, to);
    if (own.numel() > 0) transport_->send(to.rank, bytes_of(own), lane)->wait();
  });
}

void ProcessCommunicator::recv(torch::Tensor tensor, Peer from) {
  const TraceSpan span("communication", "recv");
  require_peer(*this, "recv", tensor, from);
  queues_.messages(from.rank, /*sends=*/false).settle();
  torch::Tensor own = ready(tensor);
  const Transport::Lane lane = from.rank < rank() ? kUpwards : kDownwards;
  agreement_.exchange(exchange_with("recv", lane, tensor, from), [&] {
    if (stays(own)) {
      options_.devices->recv(own, from);
    } else if (own.numel() > 0) {
      transport_->receive(from.rank, bytes_of(own), lane)->wait();
    }
    if (!same_memory(own, tensor)) tensor.detach().copy_(own);
  });
}

void ProcessCommunicator::send_on(uint32_t way, const torch::Tensor& tensor, Peer to) {
  const torch::Tensor own = tensor.detach().to(torch::kCPU).contiguous();
  const Transport::Lane lane = kFirstWay + way;
  agreement_.exchange(exchange_with("send", lane, tensor, to), [&] {
    if (own.numel() > 0) transport_->send(to.rank, bytes_of(own), lane)->wait();
  });
}

void ProcessCommunicator::recv_on(uint32_t way, torch::Tensor tensor, Peer from) {
  const torch::Tensor own = at::empty(tensor.sizes(), tensor.options().device(torch::kCPU));
  const Transport::Lane lane = kFirstWay + way;
  agreement_.exchange(exchange_with("recv", lane, tensor, from), [&] {
    if (own.numel() > 0) transport_->receive(from.rank, bytes_of(own), lane)->wait();
    tensor.detach().copy_(own);
  });
}

std::unique_ptr<ProcessCommunicator> ProcessCommunicator::split_processes(int color, int key) {
  const auto choices = gather_numbers("split", {color, key});
  const std::string name = c10::str(options_.agreement.name, "/split/", ++splits_, "/", color);
  if (color < 0) {
    if (options_.devices) (void)options_.devices->split(color, key);
    return nullptr;
  }
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) {
    if (choices[static_cast<std::size_t>(r)][0] == color) ranks.push_back(r);
  }
  const auto key_of = [&](int rank) { return choices[static_cast<std::size_t>(rank)][1]; };
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) { return key_of(a) < key_of(b); });

  ProcessGroupOptions options = options_;
  options.agreement.name = name;
  options.agreement.members.clear();
  for (const int rank : ranks) {
    const auto& members = options_.agreement.members;
    options.agreement.members.push_back(members.empty() ? rank : members[static_cast<std::size_t>(rank)]);
  }
  if (options_.devices) options.devices = options_.devices->split(color, key);
  auto group = std::make_unique<ProcessCommunicator>(transport_->subset(ranks, name), std::move(options));
  const std::lock_guard lock(parts_mutex_);
  std::erase_if(parts_, [](const auto& part) { return part.expired(); });
  parts_.push_back(group->self_);
  return group;
}

std::vector<ProcessCommunicator::Numbers> ProcessCommunicator::gather_numbers(const std::string& what,
                                                                              const Numbers& mine) {
  return finish_gather(*begin_gather(what, mine));
}

std::shared_ptr<ProcessCommunicator::Begun> ProcessCommunicator::begin_gather(const std::string& what,
                                                                              const Numbers& mine) {
  settle();
  return agreement_.begin(what, mine);
}

std::vector<ProcessCommunicator::Numbers> ProcessCommunicator::finish_gather(Begun& begun) {
  settle();
  return agreement_.finish(begun);
}

}  // namespace cohort
