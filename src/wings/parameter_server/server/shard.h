// Shard: a variable on a parameter server, or a part of one. It has the values, the optimizer slots, and a record of
// the updates that were applied to them.
#pragma once

#include <torch/types.h>

#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "cohort/optimizer.h"
#include "optimizer/update_rule.h"
#include "step/update/memory.h"
#include "wings/parameter_server/server/pending_steps.h"
#include "wings/parameter_server/server/update_log.h"

namespace cohort {

struct ShardSpec {
  std::string name;            // "<variable>", or "<variable>/part_<i>"
  std::vector<int64_t> shape;  // the shape of this part; dimension 0 counts its rows
  torch::ScalarType dtype = torch::kFloat;
  bool trainable = true;      // gradients update it; it is float32 or float64 then, and has slots
  bool has_siblings = false;  // there are other shards of the same variable
  Treatment treatment = {};   // the optimizer's treatment of it
};

// A part of a variable, on the CPU. Readers see it before an update or after it, never in between. Arguments and
// results are contiguous, and rows are counted from the first row of the shard. InvalidArgument names a shape, dtype or
// row that does not fit. Thread-safe.
class Shard {
 public:
  // Takes over `value`, which nobody else may use any more. InvalidArgument: `optimizer` needs the norm of whole
  // variables and this is a part, or the dtype cannot be trained.
  Shard(ShardSpec spec, const torch::Tensor& value, Optimizer optimizer);

  const ShardSpec& spec() const { return spec_; }
  // Returns the number of changes so far.
  int64_t version() const;
  // Returns the number of optimizer steps so far.
  int64_t iterations() const;

  // The next functions update the shard. Each returns false if an update with this id was applied before.

  // Does a step of the optimizer. The memory of the gradient is kept and overwritten.
  bool apply_gradient(const UpdateId& id, const torch::Tensor& gradient, const Share& share = {});
  // Does a step in which only some rows have a gradient: `rows` has one for each of `indices` (int64). Gradients of the
  // same index are added up first, in their order. The values and the slots of other rows stay as they are, as in
  // torch.optim.SparseAdam; Unimplemented for rules that need norms of the whole.
  bool apply_rows(const UpdateId& id, const torch::Tensor& indices, const torch::Tensor& rows, const Share& share = {});
  bool assign(const UpdateId& id, const torch::Tensor& value);
  bool add(const UpdateId& id, const torch::Tensor& delta);

  // A copy of the value, and its version.
  struct Value {
    torch::Tensor value;
    int64_t version = 0;
  };
  // Returns the value, or nothing if it is still at version `known`.
  std::optional<Value> read(int64_t known = -1) const;
  torch::Tensor read_rows(const torch::Tensor& indices) const;

  bool has_update(const UpdateId& id) const;
  void forget_updates_below(int64_t closure);

  // Sets the learning rate that replaces the optimizer's from now on.
  void set_learning_rate(double rate);

  // The state with which another shard of the same spec goes on bit for bit. Values and slots are transferred in ranges
  // of rows, so that no task has to hold them twice. A scalar is one row.
  class Snapshot;
  Snapshot snapshot() const;
  int64_t num_rows() const { return spec_.shape.empty() ? 1 : spec_.shape.front(); }
  // Returns the bytes of the value and the slots of a row.
  int64_t row_bytes() const;
  // Takes over what Snapshot::rows and Snapshot::progress of another shard returned.
  void load_rows(int64_t first, const std::vector<torch::Tensor>& tensors);
  void load_progress(const std::vector<torch::Tensor>& tensors);

 private:
  StepContext next_step() const;
  torch::Tensor rows_of(const torch::Tensor& whole, int64_t first, int64_t count) const;
  void step_rows(const torch::Tensor& indices, const torch::Tensor& rows, const StepContext& context);
  void step_ascending_rows(const torch::Tensor& indices, const torch::Tensor& rows, const StepContext& context);
  void require_like_value(const char* what, const torch::Tensor& tensor) const;
  void require_trainable(const char* what) const;
  void require_share(const Share& share) const;
  void require_rows(const char* what, const torch::Tensor& indices) const;
  void require_gradient_rows(const torch::Tensor& indices, const torch::Tensor& rows) const;
  void require_pending(const PendingSteps::Part& part) const;
  template <typename Change>
  bool change(const UpdateId& id, const Change& change);

  ShardSpec spec_;
  Optimizer optimizer_;
  int64_t width_;  // number of elements of a row
  mutable std::shared_mutex mutex_;
  torch::Tensor value_;
  std::vector<torch::Tensor> slots_;
  UpdateMemory memory_;  // the memory of values and slots
  int64_t version_ = 0;
  int64_t iterations_ = 0;
  Schedule learning_rate_;
  PendingSteps pending_;
  UpdateLog log_;
};

// A view of the shard's state. While it lives the shard does not change, because updates wait.
class Shard::Snapshot {
 public:
  explicit Snapshot(const Shard& shard) : shard_(shard), lock_(shard.mutex_) {}

  // Returns the value and the slots of these rows, which are the shard's own memory.
  std::vector<torch::Tensor> rows(int64_t first, int64_t count) const;
  // Returns everything else that the state consists of.
  std::vector<torch::Tensor> progress() const;

 private:
  const Shard& shard_;
  std::shared_lock<std::shared_mutex> lock_;
};

}  // namespace cohort
