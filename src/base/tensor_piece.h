// Parts of tensors that several workers save and read: each has runs of the elements of a whole that lies elsewhere.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cohort {

// Runs of elements of one length at one distance from each other. A range of a flat tensor is one run; a slice along a
// dimension is as many as there are elements before that dimension.
struct Runs {
  int64_t offset = 0;  // the place of the first element
  int64_t length = 0;  // elements of a run
  int64_t stride = 0;  // elements from the beginning of a run to that of the next one; 0 for a single run
  int64_t count = 1;   // runs

  int64_t size() const { return length * count; }
  bool operator==(const Runs& other) const = default;
};

// Returns the number of elements of a shape.
int64_t elements_in(const std::vector<int64_t>& shape);

// A slice of a dimension: the dimension is `runs` runs, each of which is cut into `parts` equal parts.
struct DimensionSlice {
  int64_t dim = 0;
  int64_t part = 0;
  int64_t parts = 1;
  int64_t runs = 1;
};
// Returns its elements, counted in an order of the dimensions (WholeTensor::order).
Runs runs_of(const std::vector<int64_t>& shape, const DimensionSlice& slice, const std::vector<int64_t>& order = {});
// Returns the elements of `runs` from the one with the number `begin` up to `end`: at most three, ascending.
std::vector<Runs> runs_between(const Runs& runs, int64_t begin, int64_t end);

// Calls visit(a, b, length) for the elements that two lists of runs have in common: from element a of the first list on
// there are as many as from element b of the second one on. Ascending.
using VisitCommon = std::function<void(int64_t first, int64_t second, int64_t length)>;
void each_common(const Runs& first, const Runs& second, const VisitCommon& visit);

// Returns the dimensions from the slowest to the fastest in memory; empty for row-major order.
std::vector<int64_t> order_of(c10::IntArrayRef shape, c10::IntArrayRef strides);

// What is known of a tensor that is saved.
struct WholeTensor {
  torch::ScalarType dtype = torch::kFloat;
  std::vector<int64_t> shape;
  std::vector<int64_t> order;  // of the dimensions in which its pieces count the elements (order_of)
};

// Returns a tensor in its shape, all elements of which came in the order in which its pieces count them.
torch::Tensor in_shape(const torch::Tensor& flat, const WholeTensor& whole);

// What one worker has of a tensor.
struct TensorPiece {
  std::string name;  // of the whole
  WholeTensor whole;
  Runs runs;             // of the elements of the whole, in its order
  torch::Tensor values;  // these elements, in any shape
};

// Returns the piece that is all of a tensor.
TensorPiece whole_piece(const std::string& name, const torch::Tensor& tensor);

// Tensors that can be read piece by piece, such as a group of a checkpoint.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // Returns the names of the tensors.
  virtual std::vector<std::string> names() const = 0;
  // Returns what is known of a tensor; null if there is none.
  virtual const WholeTensor* find(const std::string& name) const = 0;
  // Returns elements of a tensor that is there, counted in an order of its dimensions: flat, on the CPU.
  virtual torch::Tensor read(const std::string& name, const Runs& runs, const std::vector<int64_t>& order) const = 0;
  // Returns all of a tensor that is there, in its shape.
  torch::Tensor read_whole(const std::string& name) const;
};

// Tensors that are here, by name.
class TensorsByName final : public TensorSource {
 public:
  explicit TensorsByName(const std::vector<std::pair<std::string, torch::Tensor>>& tensors);

  std::vector<std::string> names() const override;
  const WholeTensor* find(const std::string& name) const override;
  torch::Tensor read(const std::string& name, const Runs& runs, const std::vector<int64_t>& order) const override;

 private:
  struct Entry {
    torch::Tensor tensor;
    WholeTensor whole;
  };
  std::map<std::string, Entry> entries_;
};

// Returns which of so many workers writes each of the tensors that all of them have, so that each writes about as many
// bytes as the others.
std::vector<int> writers_of(const std::vector<int64_t>& bytes, int workers);

}  // namespace cohort
