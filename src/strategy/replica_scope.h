// ReplicaScope: what stands between a replica and the function given to run() where the function gets a part of the
// replica's share, or computes a part of the model, at a time: a microbatch of a pipeline. The thread of such a call
// has one (ThreadContext::replica_scope); others have none, and get the whole share and the whole model.
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

class Communicator;
class Replica;

// Tensors by their numbers (tensor_id).
using TensorIds = std::set<const void*>;

// The tensors that parts of a model have used.
struct TensorsUsed {
  TensorIds all = {};
  std::map<const void*, std::set<int>> changed = {};  // with the parts of the model that change them
};

// A step of an optimizer whose backward passes the scope makes.
struct LaterStep {
  const void* owner = nullptr;  // the optimizer; a step has one
  torch::Tensor loss;           // of this part of the share, times what the update divides by
  std::vector<torch::Tensor> parameters;
  // Updates the parameters by the sums of their gradients over the share, undefined for zero; called once, in the
  // replica's own thread.
  std::function<void(Replica&, std::vector<torch::Tensor>)> update;
  // Takes what the parts of the model in this process have used, [local replica]: fails if several change the same
  // tensor of the module, and leaves the process its own where others have used the rest. Called once, before the first
  // update, in cross-replica context; a collective of all workers. Empty: it has been.
  std::function<void(const std::vector<const TensorsUsed*>&)> place = {};
};

class ReplicaScope {
 public:
  virtual ~ReplicaScope() = default;

  // Returns the number of examples of the part of the share; -1: there is no batch.
  virtual int64_t examples() const = 0;
  virtual at::Generator& generator() = 0;
  // Returns the replica's end of its line along an axis, for the part of the model that this thread computes.
  virtual Communicator& group(std::string_view axis) = 0;
  // Ends a part of the model with these values, and returns them as the next part gets them, when that is to begin.
  virtual std::vector<torch::Tensor> at_cut(const std::vector<torch::Tensor>& values) = 0;
  // Returns whether a part of the model begins at the place of this name.
  virtual bool begins_at(std::string_view name) = 0;
  virtual void minimize(LaterStep step) = 0;
  // Has something done once for the whole share, after the update.
  virtual void after_step(std::function<void(const Replica&)> act) = 0;
  // Returns whether another process computes the part of the model that the function is in (absent.h).
  virtual bool elsewhere() const = 0;
  // Notes that a part of the model in this process uses a tensor, or changes it.
  virtual void note_use(const torch::Tensor& tensor) = 0;
  virtual void note_change(const torch::Tensor& tensor) = 0;
  // Returns whether count() wants the operations of this thread, which are handed over for that; it gets those that
  // others consist of.
  virtual bool counts() const { return false; }
  // Takes an operation such as "aten::mm" with its arguments and its first result.
  virtual void count(std::string_view /*operation*/, const std::vector<c10::IValue>& /*arguments*/,
                     const torch::Tensor& /*result*/) {}

  // Notes that a part of the model in another process has written to a tensor, whose values this one lacks from then
  // on.
  void note_written(const torch::Tensor& tensor);
  // Returns whether this process lacks the values of a tensor, or of one that shares its memory.
  bool lacks(const torch::Tensor& tensor) const;
  bool lacks_any() const { return !written_.empty(); }

 protected:
  std::vector<c10::Storage> written_;  // kept, so that no other tensor gets the same memory
};

// Fails with Unimplemented if this thread gets a part of a share: `what` needs all of it. Without a batch a function
// gets all there is at once.
void require_whole_share(std::string_view what);
// Fails with Unimplemented if this thread has a scope, with or without a batch: `what` needs the model's operations in
// one piece.
void require_whole_model(std::string_view what);

// Calls act(replica) at the end of the replica's step: now, or where the share comes in parts once for all of them.
void at_end_of_step(const Replica& replica, std::function<void(const Replica&)> act);

}  // namespace cohort
