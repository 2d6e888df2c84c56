#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>

#include "base/fail.h"
#include "data/node.h"

namespace cohort {

namespace {

using Columns = std::vector<torch::Tensor>;

Columns columns_of(const Example& example) {
  Columns columns{example.x, example.y, example.weight};
  columns.insert(columns.end(), example.more.begin(), example.more.end());
  return columns;
}

Example to_example(Columns columns) {
  Example example{columns[0], columns[1], columns[2], {}};
  example.more.assign(columns.begin() + 3, columns.end());
  return example;
}

std::vector<int64_t> batched_shape(int64_t rows, at::IntArrayRef shape) {
  std::vector<int64_t> result{rows};
  result.insert(result.end(), shape.begin(), shape.end());
  return result;
}

// Rows of one column, copied together.
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

// One column of the elements of a batch, as one tensor.
torch::Tensor stack_column(const std::vector<Columns>& elements, std::size_t column) {
  // An element of fewer columns than another lacks them.
  const auto column_of = [&](const Columns& element) {
    return element.size() > column ? element[column] : torch::Tensor();
  };
  const torch::Tensor first = column_of(elements.front());
  bool plain = first.defined() && first.is_cpu();
  for (const Columns& element : elements) {
    const torch::Tensor other = column_of(element);
    if (other.defined() != first.defined() ||
        (first.defined() && (other.sizes() != first.sizes() || other.scalar_type() != first.scalar_type()))) {
      fail<InvalidArgument>("[data] batch: elements of different shapes or dtypes, ",
                            first.defined() ? c10::str(first.scalar_type(), first.sizes()) : "none", " and ",
                            other.defined() ? c10::str(other.scalar_type(), other.sizes()) : "none");
    }
    plain = plain && other.is_cpu() && other.is_contiguous();
  }
  if (!first.defined()) return {};
  if (!plain) {
    std::vector<torch::Tensor> parts;
    for (const Columns& element : elements) parts.push_back(element[column]);
    return at::stack(parts);
  }
  torch::Tensor result =
      at::empty(batched_shape(static_cast<int64_t>(elements.size()), first.sizes()), first.options());
  auto* to = static_cast<char*>(result.data_ptr());
  for (const Columns& element : elements) {
    std::memcpy(to, element[column].data_ptr(), element[column].nbytes());
    to += element[column].nbytes();
  }
  return result;
}

class BatchIterator final : public ElementIterator {
 public:
  BatchIterator(std::unique_ptr<ElementIterator> input, int64_t size, bool drop_remainder)
      : input_(std::move(input)), size_(size), drop_remainder_(drop_remainder) {}

  bool next(Element& element) override {
    const int64_t count = input_->table() != nullptr ? take_rows() : take_examples();
    if (count == 0 || (drop_remainder_ && count < size_)) return false;
    element = {.example = input_->table() != nullptr ? gather() : stack()};
    return true;
  }

  nlohmann::json save(std::vector<torch::Tensor>& tensors) override { return {{"batch", input_->save(tensors)}}; }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    input_->restore(tree.at("batch"), tensors);
  }

 private:
  int64_t take_rows() {
    rows_.clear();
    Element element;
    while (static_cast<int64_t>(rows_.size()) < size_ && input_->next(element)) rows_.push_back(element.row);
    return static_cast<int64_t>(rows_.size());
  }

  int64_t take_examples() {
    elements_.clear();
    Example example;
    while (static_cast<int64_t>(elements_.size()) < size_ && input_->next_example(example)) {
      elements_.push_back(columns_of(example));
    }
    return static_cast<int64_t>(elements_.size());
  }

  Example gather() const {
    Columns columns;
    for (const torch::Tensor& column : columns_of(*input_->table())) {
      columns.push_back(column.defined() ? gather_rows(column, rows_) : column);
    }
    return to_example(std::move(columns));
  }

  Example stack() {
    Columns columns;
    std::size_t count = 0;
    for (const Columns& element : elements_) count = std::max(count, element.size());
    for (std::size_t i = 0; i < count; ++i) columns.push_back(stack_column(elements_, i));
    elements_.clear();
    return to_example(std::move(columns));
  }

  std::unique_ptr<ElementIterator> input_;
  int64_t size_;
  bool drop_remainder_;
  std::vector<int64_t> rows_;
  std::vector<Columns> elements_;
};

class BatchNode final : public UnaryNode {
 public:
  BatchNode(NodePtr input, int64_t size, const BatchOptions& options)
      : UnaryNode(std::move(input)), size_(size), drop_remainder_(options.drop_remainder) {}

  std::unique_ptr<ElementIterator> iterate(const IteratorOptions& options) const override {
    return std::make_unique<BatchIterator>(input().iterate(options), size_, drop_remainder_);
  }
  int64_t cardinality() const override {
    const int64_t count = input().cardinality();
    if (count < 0) return count;
    return drop_remainder_ ? count / size_ : (count + size_ - 1) / size_;
  }
  Batching batching() const override { return {.batched = true, .size = size_}; }

 private:
  int64_t size_;
  bool drop_remainder_;
};

}  // namespace

NodePtr make_batch(NodePtr input, int64_t size, const BatchOptions& options) {
  return std::make_shared<BatchNode>(std::move(input), size, options);
}

}  // namespace cohort
