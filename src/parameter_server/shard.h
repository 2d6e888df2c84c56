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
#include "parameter_server/update_log.h"

namespace cohort {

struct ShardSpec {
  std::string name;            // "<variable>", or "<variable>/part_<i>"
  std::vector<int64_t> shape;  // of this part; dimension 0 counts its rows
  torch::ScalarType dtype = torch::kFloat;
  bool trainable = true;      // by gradients: float32 or float64, and it has slots
  bool has_siblings = false;  // other shards of the same variable
};

// On the CPU. Thread-safe: readers see a shard before an update or after it. Tensors that come and go are contiguous,
// and rows are counted from the shard's first. InvalidArgument: a shape, dtype or row that does not fit, by name.
class Shard {
 public:
  // Copies `value`. InvalidArgument: `optimizer` needs norms of whole variables and this is a part; a dtype that is not
  // trained.
  Shard(ShardSpec spec, const torch::Tensor& value, Optimizer optimizer);

  const ShardSpec& spec() const { return spec_; }
  // Changes so far.
  int64_t version() const;
  // Steps of the optimizer so far.
  int64_t iterations() const;

  // Updates. Each returns whether it did anything: false when one of this id was applied before.

  // A step of the optimizer with `scale` times the gradient, whose memory is overwritten by some rules.
  bool apply_gradient(const UpdateId& id, const torch::Tensor& gradient, double scale = 1.0);
  // The same where only some rows have a gradient: `rows` has one for each of `indices` (int64). Those of the same
  // index are added up first, in their order. The values and the slots of other rows stay as they are, as in
  // torch.optim.SparseAdam; Unimplemented for rules that need norms of the whole.
  bool apply_rows(const UpdateId& id, const torch::Tensor& indices, const torch::Tensor& rows, double scale = 1.0);
  bool assign(const UpdateId& id, const torch::Tensor& value);
  bool add(const UpdateId& id, const torch::Tensor& delta);

  // A copy; nothing when it is still at version `known`.
  struct Value {
    torch::Tensor value;
    int64_t version = 0;
  };
  std::optional<Value> read(int64_t known = -1) const;
  torch::Tensor read_rows(const torch::Tensor& indices) const;

  void forget_updates_below(int64_t closure);

  // Everything that makes another shard with the same spec go on bit for bit: "value", "<slot>", "counts", "updates".
  std::vector<std::pair<std::string, torch::Tensor>> state() const;
  // NotFound or InvalidArgument name the entry that is missing or does not fit; the shard is as before then.
  void load_state(const std::vector<std::pair<std::string, torch::Tensor>>& state);

 private:
  StepContext next_step(double scale) const;
  Segment segment(int64_t begin, int64_t size, void* gradient, void** slots) const;
  void step_dense(const torch::Tensor& gradient, const StepContext& context);
  void step_rows(const torch::Tensor& indices, const torch::Tensor& rows, const StepContext& context);
  void require_like_value(const char* what, const torch::Tensor& tensor) const;
  void require_trainable(const char* what) const;
  void require_rows(const char* what, const torch::Tensor& indices) const;
  template <typename Change>
  bool change(const UpdateId& id, const Change& change);

  ShardSpec spec_;
  Optimizer optimizer_;
  bool decay_;
  int64_t width_;  // elements of a row
  mutable std::shared_mutex mutex_;
  torch::Tensor value_;
  std::vector<torch::Tensor> slots_;
  int64_t version_ = 0;
  int64_t iterations_ = 0;
  UpdateLog log_;
};

}  // namespace cohort
