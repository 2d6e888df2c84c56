// Communicator: operations between the ranks of a group. A back end is one class in a folder of its own
// (src/collective: local, gloo, mpi, nccl); what sums are made of is above them (src/collective/algorithms).
#pragma once

#include <torch/types.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/trace.h"

namespace cohort {

class WorkQueues;

// The two reductions that distribution strategies know, which add in an order of the ranks that timing does not change.
enum class ReduceOp { kSum, kMean };

// Returns the op that "SUM" or "MEAN" names, in any case; anything else is an InvalidArgument.
ReduceOp parse_reduce_op(std::string_view text);
// Returns "SUM" or "MEAN".
std::string_view to_string(ReduceOp op);

// An operation that goes on while the caller does something else. Copies stand for the same operation. One that is
// dropped goes on all the same: the destructor of the communicator waits for it.
template <typename Result = void>
class Work {
 public:
  // The clock of times().
  using Clock = std::chrono::steady_clock;
  // The times at which an operation began and ended.
  struct Times {
    Clock::time_point begin = {};  // the time of its beginning
    Clock::time_point end = {};    // the time of its end
  };

  // Makes the handle of the operation that will set the times and then the result.
  Work(std::shared_future<Result> result, std::shared_ptr<const Times> times)
      : result_(std::move(result)), times_(std::move(times)) {}

  // Returns the result once the operation has ended, or throws what ended it. The group's timeout counts from when the
  // operation begins, which is when those before it have ended.
  Result wait() const {
    const TraceSpan span("communication", "wait for an operation");
    return result_.get();
  }
  // Returns whether the operation has ended.
  bool done() const { return result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  // Returns when the operation began and ended, once it has ended.
  Times times() const {
    result_.wait();
    return *times_;
  }

 private:
  std::shared_future<Result> result_;
  std::shared_ptr<const Times> times_;
};

// The other end of a message.
struct Peer {
  int rank = 0;  // the rank in the group
  int tag = 0;   // a number of the program's own that both ends must give
};

// One rank's end of a group. Every rank calls the same collectives with the same shapes and dtypes in the same order;
// a rank that does not is found out and named on every rank (FailedPrecondition). Every call ends within the group's
// timeout (DeadlineExceeded names the missing ranks) and fails with Cancelled once the group is aborted.
// One thread a rank at a time; different ranks run in parallel. In a group of one rank collectives return at once.
class Communicator {
 public:
  virtual ~Communicator() = default;

  // Returns the name of the back end.
  virtual std::string_view name() const = 0;
  // Returns this rank, from 0 to size() - 1.
  virtual int rank() const = 0;
  // Returns the number of ranks in the group.
  virtual int size() const = 0;

  // Reduces each tensor over the ranks, in place. Dense, any floating or integer dtype; kMean on integers truncates.
  virtual void all_reduce(std::span<torch::Tensor> tensors, ReduceOp op) = 0;

  // Copies the root's values into the tensors of all others.
  virtual void broadcast(std::span<torch::Tensor> tensors, int root) = 0;

  // Returns the tensors of all ranks, in rank order. Their sizes may differ in dimension 0 only.
  virtual std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor) = 0;

  // Reduces over the ranks and returns this rank's part, the same bits as in the result of all_reduce: dimension 0 is
  // cut into size() equal pieces (InvalidArgument when it does not divide), and each rank receives only its own.
  virtual torch::Tensor reduce_scatter(const torch::Tensor& tensor, ReduceOp op) = 0;

  // Sends parts[r] to rank r and returns what each rank has sent to this one, in rank order. There are size() parts of
  // one dtype (InvalidArgument); all parts of all ranks may differ in the size of dimension 0 only, which may be 0.
  virtual std::vector<torch::Tensor> all_to_all(std::span<const torch::Tensor> parts) = 0;

  // Returns once every rank has called it.
  virtual void barrier() = 0;

  // Sends a tensor to one rank, which calls recv(). Messages from one rank to another arrive in the order in which they
  // were sent, whatever other operations run. Returns when the tensor may be changed again: at the latest when it has
  // arrived, so that two ranks that send to each other use send_async().
  virtual void send(const torch::Tensor& tensor, Peer to) = 0;

  // Receives the next tensor that the peer sends to this rank, of the same shape, dtype and tag; another one is a
  // mismatch (FailedPrecondition names both), after which the group goes on with the message after it.
  virtual void recv(torch::Tensor tensor, Peer from) = 0;

  // Returns this rank's end of a new group of the ranks that give the same color, in the order of their keys and, for
  // equal keys, of their ranks; null for a negative color. Collective. The group works beside this one, in another
  // thread if need be, may outlive it, and ends when this one is aborted.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  // Fails the pending and all later operations with Cancelled and this reason: of every rank in this process, and of
  // the groups split from this one. May be called from any thread.
  virtual void abort(const std::string& reason) = 0;

  // The same operations, asynchronously. Collectives run one after the other, in the order of the calls; one that is
  // called without _async waits for those before it. Messages wait for those to, or from, the same rank. The tensors
  // must stay as they are, and not be read where they are written to, until the work has ended.
  Work<> all_reduce_async(std::vector<torch::Tensor> tensors, ReduceOp op);             // see all_reduce()
  Work<> broadcast_async(std::vector<torch::Tensor> tensors, int root);                 // see broadcast()
  Work<std::vector<torch::Tensor>> all_gather_async(const torch::Tensor& tensor);       // see all_gather()
  Work<torch::Tensor> reduce_scatter_async(const torch::Tensor& tensor, ReduceOp op);   // see reduce_scatter()
  Work<std::vector<torch::Tensor>> all_to_all_async(std::vector<torch::Tensor> parts);  // see all_to_all()
  Work<> barrier_async();                                                               // see barrier()
  Work<> send_async(const torch::Tensor& tensor, Peer to);                              // see send()
  Work<> recv_async(const torch::Tensor& tensor, Peer from);                            // see recv()

  // Returns the threads of the asynchronous operations. The library's back ends use this
  // (src/collective/work_queues.h).
  virtual WorkQueues& queues() = 0;
};

}  // namespace cohort
