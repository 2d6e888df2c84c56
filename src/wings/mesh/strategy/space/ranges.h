// Which rows of a dimension each part of it has, needs and sends. Pure arithmetic, in whole numbers.
//
// A dimension of `size` rows lies on `parts` replicas by one rule: part i has the rows from i * size / parts on. The
// rule is the same for every tensor, so that tensors of one size always fit each other, and nothing but the size need
// be known to tell where each row is. Halving a size moves the borders by less than a row, unlike with parts of
// ceil(size / parts) rows; parts are empty only where there are fewer rows than parts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace cohort::space {

// Rows begin .. end - 1; none if end <= begin.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  bool empty() const { return end <= begin; }
  int64_t size() const { return empty() ? 0 : end - begin; }
  bool holds(const Range& other) const { return other.empty() || (begin <= other.begin && other.end <= end); }
  bool operator==(const Range&) const = default;
};

// Returns the rows that are in both.
Range common(const Range& a, const Range& b);
// Returns the rows of part `part` of `parts`.
Range part_of(int64_t size, int64_t parts, int64_t part);

// A window that slides over a dimension: a convolution's or a pooling's.
struct Window {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t before = 0;  // the padding at the beginning
  int64_t after = 0;   // the padding at the end

  // Returns the rows between the first row that a window sees and the last, both included.
  int64_t reach() const { return dilation * (kernel - 1) + 1; }
  // Returns the number of outputs of so many rows; 0 if the window does not fit.
  int64_t outputs(int64_t size) const;
  // Returns the rows that these outputs see; the padding is counted, as rows below 0 and from the size on.
  Range inputs(const Range& outputs) const;
};

// Returns the rows of an input of `size` rows from which these outputs of a transposed convolution come, whose padding
// is `before`: input i adds to the outputs i * stride - before + t * dilation, for t below the kernel's size.
Range transposed_inputs(const Window& window, const Range& outputs, int64_t size);

// Rows that one part has and another needs.
struct Transfer {
  int64_t part = 0;  // the other part
  Range rows = {};

  bool operator==(const Transfer&) const = default;
};

// The messages of one part, in the order of the other parts.
struct Transfers {
  std::vector<Transfer> sends;
  std::vector<Transfer> receives;
};

// Returns the messages of part `own` when part i needs the rows needs[i], which lie between 0 and size.
Transfers transfers(int64_t size, const std::vector<Range>& needs, int64_t own);

// Returns for each part the rows that it needs: those that need_of() says for its part of an output of `outputs` rows,
// as far as there are such rows.
std::vector<Range> needs_of(int64_t size, int64_t outputs, int64_t parts, const std::function<Range(Range)>& need_of);

}  // namespace cohort::space
