// The asynchronous form of every operation, once for all back ends: the operation itself, in a thread of the
// communicator.
#include "cohort/communicator.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/fail.h"
#include "collective/work_queues.h"

namespace cohort {

ReduceOp parse_reduce_op(std::string_view text) {
  std::string upper(text);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  if (upper == "SUM") return ReduceOp::kSum;
  if (upper == "MEAN") return ReduceOp::kMean;
  fail<InvalidArgument>("[collective] reduce op \"", text, "\" is not known, only SUM and MEAN are");
}

std::string_view to_string(ReduceOp op) {
  return op == ReduceOp::kSum ? "SUM" : "MEAN";
}

namespace {

// Returns the stream that the caller's work on the tensor's device goes to; nothing for devices without streams.
std::optional<c10::Stream> current_stream(const torch::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu() || !c10::impl::hasDeviceGuardImpl(tensor.device().type())) {
    return std::nullopt;
  }
  return c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
}

// Starts the operation, which comes after what the caller has enqueued for the device of `tensor`.
template <typename Operation>
auto start(WorkQueue& queue, const torch::Tensor& tensor, Operation operation) {
  using Result = decltype(operation());
  using Times = typename Work<Result>::Times;
  auto promise = std::make_shared<std::promise<Result>>();
  auto times = std::make_shared<Times>();
  Work<Result> work(promise->get_future().share(), times);
  queue.push([=, operation = std::move(operation), stream = current_stream(tensor)]() mutable {
    times->begin = Work<Result>::Clock::now();
    try {
      std::optional<c10::StreamGuard> guard;
      if (stream) guard.emplace(*stream);
      if constexpr (std::is_void_v<Result>) {
        operation();
        times->end = Work<Result>::Clock::now();
        promise->set_value();
      } else {
        Result result = operation();
        times->end = Work<Result>::Clock::now();
        promise->set_value(std::move(result));
      }
    } catch (...) {
      times->end = Work<Result>::Clock::now();
      promise->set_exception(std::current_exception());
    }
  });
  return work;
}

torch::Tensor first_of(const std::vector<torch::Tensor>& tensors) {
  return tensors.empty() ? torch::Tensor() : tensors.front();
}

}  // namespace

Work<> Communicator::all_reduce_async(std::vector<torch::Tensor> tensors, ReduceOp op) {
  const torch::Tensor first = first_of(tensors);
  return start(queues().collectives(), first,
               [this, tensors = std::move(tensors), op]() mutable { all_reduce(tensors, op); });
}

Work<> Communicator::broadcast_async(std::vector<torch::Tensor> tensors, int root) {
  const torch::Tensor first = first_of(tensors);
  return start(queues().collectives(), first,
               [this, tensors = std::move(tensors), root]() mutable { broadcast(tensors, root); });
}

Work<std::vector<torch::Tensor>> Communicator::all_gather_async(const torch::Tensor& tensor) {
  return start(queues().collectives(), tensor, [this, tensor] { return all_gather(tensor); });
}

Work<torch::Tensor> Communicator::reduce_scatter_async(const torch::Tensor& tensor, ReduceOp op) {
  return start(queues().collectives(), tensor, [this, tensor, op] { return reduce_scatter(tensor, op); });
}

Work<std::vector<torch::Tensor>> Communicator::all_to_all_async(std::vector<torch::Tensor> parts) {
  const torch::Tensor first = first_of(parts);
  return start(queues().collectives(), first, [this, parts = std::move(parts)] { return all_to_all(parts); });
}

Work<> Communicator::barrier_async() {
  return start(queues().collectives(), {}, [this] { barrier(); });
}

Work<> Communicator::send_async(const torch::Tensor& tensor, Peer to) {
  return start(queues().messages(to.rank, /*sends=*/true), tensor, [this, tensor, to] { send(tensor, to); });
}

Work<> Communicator::recv_async(const torch::Tensor& tensor, Peer from) {
  return start(queues().messages(from.rank, /*sends=*/false), tensor, [this, tensor, from] { recv(tensor, from); });
}

}  // namespace cohort
