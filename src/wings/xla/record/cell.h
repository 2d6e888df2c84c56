// What stands in place of a recorded tensor's memory. A tensor of the device XLA is LibTorch's own TensorImpl, with
// sizes and strides as LibTorch itself computes them, over a storage whose data is a Cell. Tensors that share memory
// share the cell, so aliasing is exactly LibTorch's, and a view is nothing but sizes, strides and an offset: reading
// one is as_strided of the cell's value, writing one is as_strided_scatter.
#pragma once

#include <c10/core/TensorImpl.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wings/xla/record/graph.h"

namespace cohort::record {

class Recording;

// Where the elements of a tensor are in its memory, in elements.
struct Strided {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;

  bool operator==(const Strided&) const = default;
  bool is_contiguous() const;
};

Strided strided_of(const torch::Tensor& tensor);
std::vector<int64_t> dense_strides(c10::IntArrayRef sizes);

// One tensor or view at a time reads or writes it, under the recording's lock.
class Cell {
 public:
  // The value has the sizes of `root`, which is dense: every element of the memory occurs once.
  Cell(Recording& recording, Value value, Strided root);
  Cell(const Cell&) = delete;
  Cell& operator=(const Cell&) = delete;
  ~Cell();

  Recording& recording() const { return recording_; }
  torch::ScalarType dtype() const { return value_.type().dtype; }

  Value read(const Strided& view);
  void write(const Strided& view, const Value& value);

  // Returns the value of the whole memory.
  const Value& value() const { return value_; }
  // Gives the cell the same value from another node.
  void replace(const Value& value);
  // Returns the leaf that the cell's memory was before anything pending was written to it, or null.
  const std::shared_ptr<Node>& placed() const { return placed_; }

  const std::string& name() const { return name_; }
  void set_name(std::string name);

  // For a function's recording (function_recording.h). The number of the cell, in the order in which cells are made.
  uint64_t id() const { return id_; }
  const Strided& root() const { return root_; }
  // Returns whether the function that was being recorded when the cell was made has made it.
  bool is_of_function() const { return is_of_function_; }
  // Returns the storage that holds the cell.
  c10::Storage storage() const;
  void set_storage(c10::StorageImpl* storage) { storage_ = storage; }
  // Gives the cell another value and layout.
  void set_state(const Value& value, const Strided& root, std::shared_ptr<Node> placed);
  // Forgets the values of views that were read.
  void forget_views() { views_.clear(); }
  // Sets the count of writes, by which autograd notices that a tensor that it has saved was written.
  void set_version(c10::VariableVersion version) { version_ = std::move(version); }
  void bump_version();

 private:
  Recording& recording_;
  uint64_t id_ = 0;
  bool is_of_function_ = false;
  Value value_;
  Strided root_;
  std::string name_;
  c10::StorageImpl* storage_ = nullptr;  // which owns the cell
  std::shared_ptr<Node> placed_;
  c10::VariableVersion version_;
  std::vector<std::pair<Strided, Value>> views_;  // those that were read since the last write
};

// Returns the cell of a recorded tensor.
Cell& cell_of(const torch::Tensor& tensor);
// Returns the number of the cell of the tensor's gradient; nothing if it has none that is recorded.
std::optional<uint64_t> gradient_of(const torch::Tensor& tensor);
// Makes a tensor with a cell of its own. The view's strides are dense; its dtype is the value's.
torch::Tensor make_tensor(const Value& value, const Strided& view, Recording& recording);
// Makes another tensor over the same cell.
torch::Tensor make_view(const torch::Tensor& of, const Strided& view);

// Makes a node of an operation with one result.
Value make_node(std::string op, std::vector<Argument> arguments, TensorType type);

}  // namespace cohort::record
