// Text: StableHLO's textual form, one operation a line, each with its location. It knows StableHLO's operations and
// their shapes, and nothing of LibTorch's.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "wings/xla/record/graph.h"

namespace cohort::record::stablehlo {

using Dims = std::vector<int64_t>;

// A value of the text: its name (%12), its sizes, and the type of its elements as StableHLO calls it (f32).
struct Operand {
  std::string name;
  Dims sizes;
  std::string element;

  int64_t rank() const { return static_cast<int64_t>(sizes.size()); }
  int64_t size(int64_t dim) const { return sizes[static_cast<std::size_t>(dim)]; }
};

// Returns StableHLO's name of a dtype. Unimplemented: it has none.
std::string element_of(torch::ScalarType dtype);
// Fails with Unimplemented, because XLA does not have the dtype.
[[noreturn]] void refuse_dtype(torch::ScalarType dtype);
bool is_float(std::string_view element);
bool is_integer(std::string_view element);
// Writes "tensor<2x3xf32>", "[1, 2]" and "array<i64: 1, 2>".
std::string type_text(const Operand& operand);
std::string type_text(const Dims& sizes, const std::string& element);
std::string list_text(const Dims& values);
std::string array_text(const Dims& values);
// Writes a number as a literal: floating ones as the hexadecimal digits of their bits.
std::string literal(double value, const std::string& element);
std::string literal_of(int64_t value);
// Returns the number of elements.
int64_t numel(const Dims& sizes);
// Returns a list of n numbers; LibTorch takes one number for all dimensions, too.
Dims repeated(Dims list, int64_t n);
// Returns the dimensions 0 ... rank-1, and those of them that are not in the list.
Dims all_dims(int64_t rank);
Dims other_dims(int64_t rank, const Dims& dims);

struct WindowDims {
  Dims size, stride, low, high, base_dilation, dilation;
  // A window of one element in each of `rank` dimensions.
  explicit WindowDims(int64_t rank);
};

struct ConvolutionText {
  std::string input, kernel, output;  // the dimensions, such as "b, f, 0, 1"
  Dims stride, low, high, lhs_dilation, rhs_dilation;
  int64_t feature_groups = 1;
  int64_t batch_groups = 1;
};

struct GatherText {
  Dims offset_dims, collapsed_dims, start_index_map, slice_sizes;
  int64_t index_vector_dim = 0;
};

struct ScatterText {
  Dims update_window_dims, inserted_window_dims, scatter_dims;
  int64_t index_vector_dim = 0;
};

class Text {
 public:
  // `precision` is that of products and convolutions: DEFAULT, HIGH or HIGHEST. "divided": the program is divided among
  // the cores of a replica. "for_cpu": it is for XLA's CPUs.
  explicit Text(std::string precision, bool divided = false, bool for_cpu = false)
      : precision_(std::move(precision)), divided_(divided), for_cpu_(for_cpu) {}

  // Sets what the operations from now on come from.
  void set_location(std::string location) { location_ = std::move(location); }
  const std::string& body() const { return body_; }

  // Writes one operation with one result; `rhs` is what stands between "=" and the location.
  Operand emit(const std::string& rhs, Dims sizes, std::string element);
  // The same with several results.
  std::vector<Operand> emit_several(const std::string& rhs, std::vector<Operand> results);

  Operand constant(double value, const Dims& sizes, const std::string& element);
  Operand integer(int64_t value, const Dims& sizes, const std::string& element);
  Operand iota(int64_t dim, const Dims& sizes, const std::string& element);
  Operand convert(const Operand& x, const std::string& element);
  Operand bitcast(const Operand& x, const std::string& element);
  Operand unary(const std::string& op, const Operand& x);
  // Both operands have the same type.
  Operand binary(const std::string& op, const Operand& a, const Operand& b);
  // The direction is EQ, NE, LT, LE, GT or GE.
  Operand compare(const std::string& direction, const Operand& a, const Operand& b);
  Operand select(const Operand& condition, const Operand& a, const Operand& b);

  Operand reshape(const Operand& x, const Dims& sizes);
  Operand transpose(const Operand& x, const Dims& permutation);
  Operand broadcast(const Operand& x, const Dims& sizes, const Dims& dims);
  // Broadcasts as LibTorch does: trailing dimensions meet, and those of size 1 grow.
  Operand expand(const Operand& x, const Dims& sizes);
  Operand slice(const Operand& x, const Dims& begin, const Dims& end, const Dims& step);
  Operand pad(const Operand& x, const Operand& value, const Dims& low, const Dims& high, const Dims& interior);
  Operand concatenate(const std::vector<Operand>& list, int64_t dim);
  Operand reverse(const Operand& x, const Dims& dims);
  Operand update_slice(const Operand& x, const Operand& update, const Dims& begin);

  // The operation is add, maximum, minimum, multiply, and, or.
  Operand reduce(const std::string& op, const Operand& x, const Dims& dims, double init);
  // Reduces x and the 64-bit indices along `dim` to the greatest (GT) or smallest (LT) element and the index of the
  // first one.
  std::pair<Operand, Operand> reduce_with_index(const std::string& direction, const Operand& x, const Operand& index,
                                                const Dims& dims);
  Operand reduce_window(const std::string& op, const Operand& x, const WindowDims& window, double init);
  // Adds each element of source to the place of its window's greatest element.
  Operand select_and_scatter(const Operand& operand, const Operand& source, const WindowDims& window);
  Operand dot(const Operand& a, const Operand& b, const Dims& batch_a, const Dims& batch_b, const Dims& contract_a,
              const Dims& contract_b);
  Operand convolution(const Operand& x, const Operand& kernel, const ConvolutionText& text, const Dims& sizes);
  Operand gather(const Operand& x, const Operand& indices, const GatherText& text, const Dims& sizes);
  // The combination is "add", or empty: the last one written stays.
  Operand scatter(const Operand& x, const Operand& indices, const Operand& updates, const ScatterText& text,
                  const std::string& combination);
  // Sorts several operands along a dimension by the first one, stably. NaN is greater than all.
  std::vector<Operand> sort(const std::vector<Operand>& operands, int64_t dim, bool descending);
  Operand all_reduce(const Operand& x, int replicas);
  // Divides the value among the cores of a replica (sharding.h).
  Operand shard(const Operand& x, const Dims& tiles);

 private:
  std::string next_name() { return "%" + std::to_string(next_++); }
  std::string region(const std::string& op, const std::string& element) const;
  Operand put_by_choice(const Operand& x, const Operand& update, const Dims& begin);
  // Returns a value that XLA does not compute in another form: it leaves a barrier where it is.
  Operand as_it_is(const Operand& x);
  bool is_faster_turned(const Operand& a, const Operand& b) const;

  const std::string precision_;
  const bool divided_;
  const bool for_cpu_;
  std::unordered_map<std::string, Operand> transposed_;  // matrices by the names of their transposes
  std::string body_;
  std::string location_;
  int next_ = 0;
};

}  // namespace cohort::record::stablehlo
