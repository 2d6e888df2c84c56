// MicrobatchCall: what a function given to run() reaches of the pipeline that calls it for a microbatch. The thread of
// such a call has one (ThreadContext::microbatch).
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <vector>

namespace cohort {

class Replica;

// Tensors by their numbers (tensor_id).
using TensorIds = std::set<const void*>;

// What chunks of a model have used.
struct TensorsUsed {
  TensorIds all = {};
  std::map<const void*, std::set<int>> changed = {};  // with the chunks of the model that change them
};

// A step of an optimizer whose backward passes the schedule makes.
struct PipelinedStep {
  const void* owner = nullptr;  // the optimizer; a step has one
  torch::Tensor loss;           // the microbatch's, times what the update divides by
  std::vector<torch::Tensor> parameters;
  // Updates the parameters by the sums of their gradients over the microbatches, undefined for zero; called once, in
  // the replica's own thread.
  std::function<void(Replica&, std::vector<torch::Tensor>)> update;
  // Takes what the chunks of this process have used, [local replica]: fails if several change the same tensor of the
  // module, and leaves the process its own where others have used the rest. Called once, before the first update, in
  // cross-replica context; a collective of all workers. Empty: it has been.
  std::function<void(const std::vector<const TensorsUsed*>&)> place = {};
};

class MicrobatchCall {
 public:
  virtual ~MicrobatchCall() = default;

  // Returns the number of examples of the microbatch; -1: there is no batch.
  virtual int64_t examples() const = 0;
  virtual at::Generator& generator() = 0;
  // Ends a chunk with these values, and returns them as the next one gets them, when that is to begin.
  virtual std::vector<torch::Tensor> next_chunk(const std::vector<torch::Tensor>& values) = 0;
  // Returns whether a chunk begins at the place of this name.
  virtual bool begins_at(std::string_view name) = 0;
  virtual void minimize(PipelinedStep step) = 0;
  // Has something done once for all microbatches, after the update.
  virtual void after_step(std::function<void(const Replica&)> act) = 0;
  // Returns whether another process computes the chunk that the function is in (absent.h).
  virtual bool elsewhere() const = 0;
  // Notes that a chunk of this process uses a tensor, or changes it.
  virtual void note_use(const torch::Tensor& tensor) = 0;
  virtual void note_change(const torch::Tensor& tensor) = 0;
  // Returns whether count() wants the operations of this thread, which are handed over for that (absent.h); it gets
  // those that others consist of.
  virtual bool counts() const { return false; }
  // Takes an operation such as "aten::mm" with its arguments and its first result.
  virtual void count(std::string_view /*operation*/, const std::vector<c10::IValue>& /*arguments*/,
                     const torch::Tensor& /*result*/) {}

  // Notes that a chunk of another process has written to a tensor, whose values this one lacks from then on.
  void note_written(const torch::Tensor& tensor);
  // Returns whether this process lacks the values of a tensor, or of one that shares its memory.
  bool lacks(const torch::Tensor& tensor) const;
  bool lacks_any() const { return !written_.empty(); }

 protected:
  std::vector<c10::Storage> written_;  // kept, so that no other tensor gets the same memory
};

// Returns whether this thread is in a chunk of a model that another process computes.
bool is_elsewhere();

// Fails with Unimplemented if this thread is in a call for a microbatch: `what` needs the replica's whole share.
// Without a batch a function gets all there is at once.
void require_whole_share(std::string_view what);
// Fails with Unimplemented if this thread is in a call of a pipeline, with or without a batch: `what` needs the model's
// operations in one piece.
void require_whole_model(std::string_view what);

// Calls act(replica) at the end of the replica's step: now, or if this is a call for a microbatch once for all of them.
void at_end_of_step(const Replica& replica, std::function<void(const Replica&)> act);

}  // namespace cohort
