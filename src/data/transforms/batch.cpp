// Batches. The rows of CPU tensors are copied by pointers, which for small examples is faster than LibTorch's
// operations; those of other devices go through these.
#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>

#include "base/columns.h"
#include "base/fail.h"
#include "data/counts.h"
#include "data/node.h"

namespace cohort {

namespace {

using Columns = std::vector<torch::Tensor>;

std::vector<int64_t> batched_shape(int64_t rows, at::IntArrayRef shape) {
  std::vector<int64_t> result{rows};
  result.insert(result.end(), shape.begin(), shape.end());
  return result;
}

std::string described(const torch::Tensor& value) {
  return value.defined() ? c10::str(value.scalar_type(), value.sizes()) : "none";
}

// Returns rows of one column as one tensor.
torch::Tensor gather_rows(const torch::Tensor& column, const std::vector<int64_t>& rows) {
  const auto count = static_cast<int64_t>(rows.size());
  if (!column.is_cpu() || !column.is_contiguous()) {
    return column.index_select(0, at::tensor(rows, torch::kLong).to(column.device()));
  }
  torch::Tensor result = at::empty(batched_shape(count, column.sizes().slice(1)), column.options());
  const auto bytes = static_cast<std::size_t>(result.nbytes()) / static_cast<std::size_t>(std::max<int64_t>(count, 1));
  const auto* from = static_cast<const char*>(column.data_ptr());
  auto* to = static_cast<char*>(result.data_ptr());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(to + i * bytes, from + static_cast<std::size_t>(rows[i]) * bytes, bytes);
  }
  return result;
}

// One column of a batch. Elements are copied into it as they arrive, so that their memory is free for the following
// ones.
class StackedColumn {
 public:
  // Begins a column that the elements so far do not have.
  explicit StackedColumn(int64_t skipped) : rows_(skipped) {}

  // Adds the next row, which is undefined if the element lacks the column. Returns false if it differs in shape or
  // dtype from the rows before it; the column takes no more rows then.
  bool add(const torch::Tensor& value, int64_t likely_rows) {
    if (rows_++ == 0) {
      first_ = value;
      if (!first_.defined()) return true;
      result_ = at::empty(batched_shape(std::max<int64_t>(likely_rows, 1), first_.sizes()), first_.options());
    }
    if (value.defined() != first_.defined()) return false;
    if (!value.defined()) return true;
    if (value.sizes() != first_.sizes() || value.scalar_type() != first_.scalar_type()) return false;
    if (rows_ > result_.size(0)) grow();
    put(value);
    return true;
  }

  const torch::Tensor& first() const { return first_; }

  torch::Tensor finish() {
    if (!first_.defined() || rows_ == result_.size(0)) return std::move(result_);
    return result_.narrow(0, 0, rows_).clone();
  }

 private:
  void grow() {
    const torch::Tensor old = result_;
    result_ = at::empty(batched_shape(2 * old.size(0), first_.sizes()), first_.options());
    result_.narrow(0, 0, old.size(0)).copy_(old);
  }

  void put(const torch::Tensor& value) {
    if (value.is_cpu() && value.is_contiguous() && result_.is_cpu()) {
      std::memcpy(static_cast<char*>(result_.data_ptr()) + static_cast<std::size_t>(rows_ - 1) * value.nbytes(),
                  value.data_ptr(), value.nbytes());
    } else {
      result_.select(0, rows_ - 1).copy_(value);
    }
  }

  int64_t rows_;
  torch::Tensor first_;
  torch::Tensor result_;
};

class BatchIterator final : public ElementIterator {
 public:
  BatchIterator(std::unique_ptr<ElementIterator> input, int64_t size, bool drop_remainder)
      : input_(std::move(input)), size_(size), drop_remainder_(drop_remainder) {}

  bool next(Element& element) override {
    return input_->table() != nullptr ? next_rows(element) : next_examples(element);
  }

  nlohmann::json save(std::vector<torch::Tensor>& tensors) override { return {{"batch", input_->save(tensors)}}; }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    input_->restore(tree.at("batch"), tensors);
  }

 private:
  bool enough(int64_t count) const { return count == size_ || (count > 0 && !drop_remainder_); }

  bool next_rows(Element& element) {
    rows_.clear();
    Element row;
    while (static_cast<int64_t>(rows_.size()) < size_ && input_->next(row)) rows_.push_back(row.row);
    if (!enough(static_cast<int64_t>(rows_.size()))) return false;
    const auto gathered = [&](const torch::Tensor& column) { return gather_rows(column, rows_); };
    element = map_columns(*input_->table(), gathered);
    return true;
  }

  bool next_examples(Element& element) {
    std::vector<StackedColumn> stacked;
    Example first;
    std::string mismatch;
    int64_t count = 0;
    Example example;
    for (; count < size_ && input_->next_example(example); ++count) {
      if (!mismatch.empty()) continue;  // the next batch begins behind it all the same
      if (count == 0) first = example;
      mismatch = add_row(stacked, first, example, count);
    }
    if (!mismatch.empty()) fail<InvalidArgument>("[data] batch: elements of different ", mismatch);
    if (!enough(count)) return false;
    likely_rows_ = count;
    Columns columns;
    for (StackedColumn& column : stacked) columns.push_back(column.finish());
    element = with_columns(first, std::move(columns));
    return true;
  }

  // Adds an example behind "count" others. Returns how it differs from them, or nothing.
  std::string add_row(std::vector<StackedColumn>& stacked, const Example& first, const Example& example,
                      int64_t count) const {
    if (!same_names(example, first)) {
      return c10::str("columns, ", list_columns(first), " and ", list_columns(example));
    }
    std::string mismatch;
    std::size_t next = 0;
    const auto add = [&](const torch::Tensor& value) {
      if (next == stacked.size()) stacked.emplace_back(count);
      StackedColumn& column = stacked[next++];
      if (column.add(value, likely_rows_) || !mismatch.empty()) return;
      mismatch = c10::str("shapes or dtypes, ", described(column.first()), " and ", described(value));
    };
    for_each_column(example, add);
    while (next < stacked.size()) add({});  // an example that lacks some of "more"
    return mismatch;
  }

  std::unique_ptr<ElementIterator> input_;
  int64_t size_;
  bool drop_remainder_;
  std::vector<int64_t> rows_;
  int64_t likely_rows_ = 1;  // the expected size of the next batch of examples
};

class BatchNode final : public UnaryNode {
 public:
  BatchNode(NodePtr input, int64_t size, const BatchOptions& options)
      : UnaryNode(std::move(input)), size_(size), drop_remainder_(options.drop_remainder) {}

  std::unique_ptr<ElementIterator> iterate(const PassOptions& options) const override {
    return std::make_unique<BatchIterator>(input().iterate(options), size_, drop_remainder_);
  }
  Extent extent(const IteratorOptions& part) const override {
    const int64_t count = input().extent(part).elements;
    if (count < 0) return {.elements = count, .examples = count, .regular = true};
    if (drop_remainder_) return {.elements = count / size_, .examples = count / size_ * size_, .regular = true};
    return {.elements = ceil_div(count, size_), .examples = count, .regular = true};
  }
  Batching batching() const override { return {.batched = true, .size = size_, .full = drop_remainder_}; }
  // If the remainder of a part is dropped there are no more parts than have a whole batch each.
  int64_t num_files() const override {
    const int64_t files = input().num_files();
    const int64_t count = input().cardinality();
    return drop_remainder_ && files > 0 && count >= 0 ? std::min(files, count / size_) : files;
  }

 private:
  int64_t size_;
  bool drop_remainder_;
};

}  // namespace

NodePtr make_batch(NodePtr input, int64_t size, const BatchOptions& options) {
  return std::make_shared<BatchNode>(std::move(input), size, options);
}

}  // namespace cohort
