#include "collective/process/process_communicator.h"

#include <ATen/Functions.h>

#include <charconv>
#include <condition_variable>
#include <map>

#include "base/deadline.h"
#include "base/error_text.h"
#include "base/fail.h"
#include "base/hash.h"
#include "base/kernels/kernels.h"
#include "base/log.h"
#include "collective/dense.h"
#include "collective/ops/cross_device_ops.h"
#include "collective/process/exchange.h"
#include "collective/process/shared_sum.h"

namespace cohort {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

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

// The dtype to add in: short ones lose too much, or overflow, on the way to a mean.
torch::ScalarType wide(torch::ScalarType dtype) {
  if (dtype == torch::kHalf || dtype == torch::kBFloat16) return torch::kFloat;
  return c10::isIntegralType(dtype, /*includeBool=*/true) ? torch::kLong : dtype;
}

template <typename T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

}  // namespace

// What the membership's thread ends when the group fails. It must own nothing of it: newer Gloos keep what they met by,
// and with it the membership, which cannot be destroyed by its own thread.
struct ProcessCommunicator::Ends {
  std::mutex mutex;
  ProcessCommunicator* communicator;  // null: it is gone
};

ProcessCommunicator::ProcessCommunicator(std::unique_ptr<Wire> wire, ProcessGroupOptions options)
    : wire_(std::move(wire)), options_(std::move(options)) {
  if (!options_.membership) return;
  ends_ = std::make_shared<Ends>();
  ends_->communicator = this;
  options_.membership->on_failure([ends = ends_](const std::string&) {
    const std::lock_guard lock(ends->mutex);
    if (ends->communicator != nullptr) ends->communicator->end_waits();
  });
  watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

ProcessCommunicator::~ProcessCommunicator() {
  if (!ends_) return;
  const std::lock_guard lock(ends_->mutex);
  ends_->communicator = nullptr;
}

std::string ProcessCommunicator::rank_name(int rank) const {
  if (!options_.membership) return c10::str("rank ", rank);
  return options_.membership->tasks()[static_cast<std::size_t>(rank)].to_string();
}

void ProcessCommunicator::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_) aborted_ = reason;
  }
  end_waits();
}

void ProcessCommunicator::end_waits() {
  wire_->abort();
  if (options_.devices) options_.devices->abort();
}

// What each rank said it is about to do. The memory of messages under way.
struct ProcessCommunicator::Begun {
  uint64_t number = 0;
  std::string what;
  Announcement own;
  Announcements all;
  std::vector<Wire::Ticket> tickets;
};

template <typename Work>
void ProcessCommunicator::recorded(uint64_t number, const std::string& what, const Work& work) {
  const torch::NoGradGuard no_grad;
  try {
    work();
    recorder_.end(number);
  } catch (const Error& error) {
    recorder_.end(number, error_text(error));
    throw;
  } catch (const std::exception& error) {
    wire_->drop();
    if (options_.devices) options_.devices->drop();
    broken_ = error_text(error);
    recorder_.end(number, error_text(error));
    explain(number, what, error_text(error));
  }
}

template <typename Work>
void ProcessCommunicator::perform(const std::string& what, const Numbers& mine, const Work& work) {
  Begun begun{.what = what, .own = {.hash = hash_of(what), .numbers = mine}};
  const uint64_t number = recorder_.begin(what);
  recorded(number, what, [&] {
    announce(begun);
    await(begun);
    work(begun.all);
  });
}

std::shared_ptr<ProcessCommunicator::Begun> ProcessCommunicator::begin_gather(const std::string& what,
                                                                              const Numbers& mine) {
  auto begun = std::make_shared<Begun>(Begun{.what = what, .own = {.hash = hash_of(what), .numbers = mine}});
  try {
    announce(*begun);
  } catch (const std::exception& error) {
    broken_ = error_text(error);  // finish_gather() says so
  }
  return begun;
}

std::vector<ProcessCommunicator::Numbers> ProcessCommunicator::finish_gather(Begun& begun) {
  std::vector<Numbers> numbers;
  recorded(recorder_.begin(begun.what), begun.what, [&] {
    await(begun);
    for (const Announcement& other : begun.all) numbers.push_back(other.numbers);
  });
  return numbers;
}

void ProcessCommunicator::announce(Begun& begun) {
  begun.number = ++announced_;
  begun.all.resize(static_cast<std::size_t>(size()));
  begun.all[static_cast<std::size_t>(rank())] = begun.own;
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    Announcement& place = begun.all[static_cast<std::size_t>(other)];
    begun.tickets.push_back(wire_->receive(other, std::as_writable_bytes(std::span(&place, 1))));
  }
  for (int other = 0; other < size(); ++other) {
    if (other != rank()) begun.tickets.push_back(wire_->send(other, std::as_bytes(std::span(&begun.own, 1))));
  }
}

void ProcessCommunicator::await(Begun& begun) {
  if (broken_) throw std::runtime_error(*broken_);
  for (const Wire::Ticket ticket : std::exchange(begun.tickets, {})) wire_->wait(ticket);
  for (const Announcement& other : begun.all) {
    if (other.hash != begun.all.front().hash) mismatch(begun.number, begun.what, begun.all);
  }
}

// Every rank sees all hashes, so all come here together and tell each other what they meant to do.
void ProcessCommunicator::mismatch(uint64_t number, const std::string& what, const Announcements& all) {
  const auto differs = [&](const Announcement& other) { return other.hash != all.front().hash; };
  const auto other = static_cast<int>(std::find_if(all.begin(), all.end(), differs) - all.begin());
  std::string first = "something else";
  std::string second = first;
  if (options_.membership) {
    const auto key = [&](int rank) { return c10::str(options_.name, "/mismatch/", number, "/", rank); };
    if (rank() == 0 || rank() == other) options_.membership->put(key(rank()), what);
    first = options_.membership->get(key(0), seconds(10));
    second = options_.membership->get(key(other), seconds(10));
  } else {
    (rank() == 0 ? first : second) = what;
  }
  fail<FailedPrecondition>("[collective] the workers do not do the same in collective ", number, ": ", rank_name(0),
                           " calls ", first, ", ", rank_name(other), " calls ", second);
}

// What a wire's error means: the health of the group knows more than a broken connection does.
void ProcessCommunicator::explain(uint64_t number, const std::string& what, const std::string& error) {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) fail<Cancelled>("[collective] ", rank_name(rank()), " in ", what, ": cancelled, because ", *aborted_);
  }
  const auto entry = recorder_.last();
  const bool out_of_time = entry && FlightRecorder::Clock::now() - entry->begin >= options_.timeout;
  log().error("[collective] {} failed in collective {}; the last ones were\n{}", rank_name(rank()), number,
              recorder_.dump());
  if (options_.membership) {
    const std::string missing = out_of_time ? stragglers(number) : "";
    if (const auto reason = options_.membership->await_failure()) {
      fail<Unavailable>("[collective] ", rank_name(rank()), " in ", what, ": ", *reason);
    }
    if (out_of_time) {
      fail<DeadlineExceeded>("[collective] ", rank_name(rank()), " waited ", to_text(options_.timeout), " in ", what,
                             " for ", missing);
    }
  }
  if (out_of_time) {
    fail<DeadlineExceeded>("[collective] ", rank_name(rank()), " waited ", to_text(options_.timeout), " in ", what);
  }
  fail<Unavailable>("[collective] ", rank_name(rank()), " in ", what, ": ", error);
}

bool ProcessCommunicator::stays(const torch::Tensor& tensor) const {
  return options_.devices && options_.devices->carries(tensor.device());
}

// Where it can be sent from, its elements one after the other.
torch::Tensor ProcessCommunicator::ready(const torch::Tensor& tensor) const {
  return (stays(tensor) ? tensor.detach() : tensor.detach().to(torch::kCPU)).contiguous();
}

void ProcessCommunicator::sum(torch::Tensor flat, ReduceOp op) {
  stays(flat) ? options_.devices->sum(flat) : exchange_sum(*wire_, flat);
  if (op == ReduceOp::kMean) divide(flat, size());
}

torch::Tensor ProcessCommunicator::shared_zeros(int64_t size, torch::ScalarType dtype) {
  std::shared_ptr<SharedSum> shared;
  if (options_.shared_memory && this->size() > 1 && size > 0 && kernels::has_kernels(dtype)) {
    const std::string& machine = options_.machine.empty() ? this_machine() : options_.machine;
    shared = SharedSum::make(*this, machine, c10::str(options_.name, "/", ++shares_), size, dtype);
  }
  if (!shared) return torch::zeros({size}, dtype);
  std::erase_if(shared_, [](const auto& old) { return old->unused(); });
  shared_.push_back(shared);
  return shared->tensor();
}

// Null when it is a tensor of this process alone.
const SharedSum* ProcessCommunicator::find_shared(std::span<const torch::Tensor> tensors) const {
  if (tensors.size() != 1) return nullptr;
  const auto has_it = [&](const auto& shared) { return shared->offset_of(tensors.front()) >= 0; };
  const auto found = std::find_if(shared_.begin(), shared_.end(), has_it);
  return found == shared_.end() ? nullptr : found->get();
}

void ProcessCommunicator::sum_shared(const SharedSum& shared, torch::Tensor tensor, ReduceOp op) {
  const int64_t offset = shared.offset_of(tensor);
  perform(c10::str("all_reduce ", op == ReduceOp::kMean ? "MEAN" : "SUM", " of ", tensor.scalar_type(), "[",
                   tensor.numel(), "] in shared memory ", shared.name(), " at ", offset),
          {}, [&](const auto&) {
            shared.sum(*wire_, offset, tensor.numel());
            if (op == ReduceOp::kMean) divide(tensor, size());
          });
}

void ProcessCommunicator::all_reduce(std::span<torch::Tensor> tensors, ReduceOp op) {
  for (const torch::Tensor& tensor : tensors) require_dense("all_reduce", tensor);
  if (size() == 1) return;
  if (const SharedSum* const shared = find_shared(tensors)) return sum_shared(*shared, tensors.front().detach(), op);
  perform(describe(op == ReduceOp::kMean ? "all_reduce MEAN" : "all_reduce SUM", tensors), {}, [&](const auto&) {
    std::map<std::pair<bool, torch::ScalarType>, std::vector<torch::Tensor>> groups;  // one message each
    for (torch::Tensor& tensor : tensors)
      groups[{stays(tensor), wide(tensor.scalar_type())}].push_back(tensor.detach());
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
  if (root < 0 || root >= size()) {
    fail<InvalidArgument>("[collective] broadcast: root ", root, ", but there are ", size(), " ranks");
  }
  for (const torch::Tensor& tensor : tensors) require_dense("broadcast", tensor);
  if (size() == 1) return;
  perform(describe(c10::str("broadcast from ", rank_name(root)), tensors), {}, [&](const auto&) {
    for (torch::Tensor& tensor : tensors) {
      torch::Tensor flat = ready(tensor);
      stays(flat) ? options_.devices->broadcast(flat, root) : exchange_broadcast(*wire_, bytes_of(flat), root);
      if (rank() != root && flat.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(flat);
    }
  });
}

std::vector<torch::Tensor> ProcessCommunicator::all_gather(const torch::Tensor& tensor) {
  require_dense("all_gather", tensor);
  if (size() == 1) return {tensor.detach().clone()};
  const bool scalar = tensor.dim() == 0;
  const torch::Tensor own = ready(scalar ? tensor.unsqueeze(0) : tensor);
  std::vector<int64_t> shape = tensor.sizes().vec();
  if (!scalar) shape[0] = -1;  // may differ
  const std::string what = c10::str("all_gather of ", tensor.scalar_type(), at::IntArrayRef(shape), place_of(tensor));
  std::vector<torch::Tensor> parts;
  perform(what, {own.size(0)}, [&](const Announcements& all_rows) {
    std::vector<int64_t> rows;
    for (const Announcement& other : all_rows) rows.push_back(other.numbers[0]);
    require_rows(own, rows);
    parts = stays(own) ? options_.devices->gather(own, rows) : exchange_gather(*wire_, own, rows);
    for (torch::Tensor& part : parts) part = (scalar ? part.squeeze(0) : part).to(tensor.device());
  });
  return parts;
}

torch::Tensor ProcessCommunicator::reduce_scatter(const torch::Tensor& tensor, ReduceOp op) {
  require_dense("reduce_scatter", tensor);
  if (tensor.dim() == 0 || tensor.size(0) % size() != 0) {
    fail<InvalidArgument>("[collective] reduce_scatter: dimension 0 of a tensor of shape ", tensor.sizes(),
                          " must be a multiple of the ", size(), " ranks");
  }
  torch::Tensor whole = tensor.detach().clone(torch::MemoryFormat::Contiguous);
  if (size() == 1) return whole;
  all_reduce({&whole, 1}, op);
  const int64_t rows = tensor.size(0) / size();
  return whole.narrow(0, rank() * rows, rows).clone();
}

void ProcessCommunicator::barrier() {
  if (size() > 1) perform("barrier", {}, [](const auto&) {});  // to agree is to have met
}

std::vector<ProcessCommunicator::Numbers> ProcessCommunicator::gather_numbers(const std::string& what,
                                                                              const Numbers& mine) {
  return finish_gather(*begin_gather(what, mine));
}

// Tells the others where this rank is, and its user for whom it waits.
void ProcessCommunicator::watch(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  uint64_t told = 0;
  while (!wake.wait_for(lock, stop, options_.straggler_after, [] { return false; }) && !stop.stop_requested()) {
    const auto last = recorder_.last();
    if (!last) continue;
    try {
      if (last->number != told) options_.membership->put(position_key(rank()), c10::str(last->number, " ", last->what));
      told = last->number;
      if (last->end || FlightRecorder::Clock::now() - last->begin < options_.straggler_after) continue;
      log().warn("[collective] {} waits in {} (collective {}) for {}", rank_name(rank()), last->what, last->number,
                 stragglers(last->number));
      options_.membership->require_whole();
    } catch (const Error&) {
      return end_waits();  // the group has failed, or lost a member: whoever waits hears of it
    }
  }
}

std::string ProcessCommunicator::position_key(int rank) const {
  return c10::str(options_.name, "/at/", rank);
}

// The ranks that have not come to this collective, with the last one that each told of.
std::string ProcessCommunicator::stragglers(uint64_t number) const {
  std::string text;
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    const std::string at = options_.membership->try_get(position_key(other)).value_or("0");
    uint64_t last = 0;  // also of what is no number
    std::from_chars(at.data(), at.data() + at.size(), last);
    if (last >= number) continue;
    text +=
        c10::str(text.empty() ? "" : ", ", rank_name(other), last == 0 ? "" : " (last seen in collective " + at + ")");
  }
  return text.empty() ? "a slow network: all have come" : text;
}

}  // namespace cohort
