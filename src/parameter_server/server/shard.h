// Shard: a variable on a parameter server, or a part of one: its values, its optimizer slots, and which updates they
// have seen.
#pragma once

#include <torch/types.h>

#include <optional>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "cohort/optimizer.h"
#include "optimizer/update_rule.h"
#include "parameter_server/server/pending_steps.h"
#include "parameter_server/server/update_log.h"
#include "step/update/memory.h"

namespace cohort {

struct ShardSpec {
  std::string name;            // "<variable>", or "<variable>/part_<i>"
  std::vector<int64_t> shape;  // of this part; dimension 0 counts its rows
  torch::ScalarType dtype = torch::kFloat;
  bool trainable = true;      // by gradients: float32 or float64, and it has slots
  bool has_siblings = false;  // other shards of the same variable
  bool decay = true;          // weight decay applies
};

// On the CPU. Thread-safe: readers see a shard before an update or after it. Tensors that come and go are contiguous,
// and rows are counted from the shard's first. InvalidArgument: a shape, dtype or row that does not fit, by name.
class Shard {
 public:
  // Keeps `value`, which nobody else may use then. InvalidArgument: `optimizer` needs norms of whole variables and this
  // is a part; a dtype that is not trained.
  Shard(ShardSpec spec, const torch::Tensor& value, Optimizer optimizer);

  const ShardSpec& spec() const { return spec_; }
  // Changes so far.
  int64_t version() const;
  // Steps of the optimizer so far.
  int64_t iterations() const;

  // Updates. Each returns whether it did anything: false when one of this id was applied before.

  // A step of the optimizer. The gradient's memory is kept and overwritten.
  bool apply_gradient(const UpdateId& id, const torch::Tensor& gradient, const Share& share = {});
  // The same where only some rows have a gradient: `rows` has one for each of `indices` (int64). Those of the same
  // index are added up first, in their order. The values and the slots of other rows stay as they are, as in
  // torch.optim.SparseAdam; Unimplemented for rules that need norms of the whole.
  bool apply_rows(const UpdateId& id, const torch::Tensor& indices, const torch::Tensor& rows, const Share& share = {});
  bool assign(const UpdateId& id, const torch::Tensor& value);
  bool add(const UpdateId& id, const torch::Tensor& delta);

  // A copy; nothing when it is still at version `known`.
  struct Value {
    torch::Tensor value;
    int64_t version = 0;
  };
  std::optional<Value> read(int64_t known = -1) const;
  torch::Tensor read_rows(const torch::Tensor& indices) const;

  bool has_update(const UpdateId& id) const;
  void forget_updates_below(int64_t closure);

  // From now on, in place of the optimizer's.
  void set_learning_rate(double rate);

  // What makes another shard of the same spec go on bit for bit. Values and slots go a range of rows at a time, so that
  // no task has to hold them twice; a scalar is one row.
  class Snapshot;
  Snapshot snapshot() const;
  int64_t num_rows() const { return spec_.shape.empty() ? 1 : spec_.shape.front(); }
  // Of a row's value and slots.
  int64_t row_bytes() const;
  // As Snapshot::rows and Snapshot::progress gave them.
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
  int64_t width_;  // elements of a row
  mutable std::shared_mutex mutex_;
  torch::Tensor value_;
  std::vector<torch::Tensor> slots_;
  UpdateMemory memory_;  // of both
  int64_t version_ = 0;
  int64_t iterations_ = 0;
  Schedule learning_rate_;
  PendingSteps pending_;
  UpdateLog log_;
};

// While it lives the shard does not change: updates wait.
class Shard::Snapshot {
 public:
  explicit Snapshot(const Shard& shard) : shard_(shard), lock_(shard.mutex_) {}

  // The value and the slots of these rows, which are the shard's own memory.
  std::vector<torch::Tensor> rows(int64_t first, int64_t count) const;
  // Everything else.
  std::vector<torch::Tensor> progress() const;

 private:
  const Shard& shard_;
  std::shared_lock<std::shared_mutex> lock_;
};

}  // namespace cohort
