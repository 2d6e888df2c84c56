// from_tensors, from_tensor_slices and range: elements that are in memory.
#include <ATen/Functions.h>

#include <limits>

#include "base/columns.h"
#include "base/fail.h"
#include "data/activity.h"
#include "data/node.h"

namespace cohort {

namespace {

// Counts from 0 to count - 1. Derived makes an element of each number.
class CountedIterator : public ElementIterator {
 public:
  explicit CountedIterator(int64_t count) : count_(count) {}

  bool next(Element& element) override {
    throw_if_stopped();
    if (at_ >= count_) return false;
    fill(at_++, element);
    return true;
  }
  nlohmann::json save(std::vector<torch::Tensor>& /*tensors*/) override { return {{"at", at_}, {"count", count_}}; }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& /*tensors*/) override {
    if (tree.at("count") != count_) {
      fail<InvalidArgument>("[data] iterator state: its source had ", tree.at("count").dump(),
                            " elements, this one has ", count_);
    }
    const auto at = tree.at("at").get<int64_t>();
    if (at < 0 || at > count_) {
      fail<InvalidArgument>("[data] iterator state: position ", at, " in a source of ", count_, " elements");
    }
    at_ = at;
  }

 protected:
  virtual void fill(int64_t at, Element& element) const = 0;

 private:
  int64_t count_;
  int64_t at_ = 0;
};

class TensorsIterator final : public CountedIterator {
 public:
  explicit TensorsIterator(Example example) : CountedIterator(1), example_(std::move(example)) {}

 private:
  void fill(int64_t /*at*/, Element& element) const override { element = example_; }
  Example example_;
};

class TensorsNode final : public DatasetNode {
 public:
  explicit TensorsNode(Example example) : example_(std::move(example)) {}
  std::unique_ptr<ElementIterator> iterate(const PassOptions& /*options*/) const override {
    return std::make_unique<TensorsIterator>(example_);
  }
  Extent extent(const IteratorOptions& /*part*/) const override { return Extent::of(1); }
  Batching batching() const override { return {}; }

 private:
  Example example_;
};

class SlicesIterator final : public CountedIterator {
 public:
  SlicesIterator(std::shared_ptr<const Example> columns, int64_t rows)
      : CountedIterator(rows), columns_(std::move(columns)) {}
  const Example* table() const override { return columns_.get(); }

 private:
  void fill(int64_t at, Element& element) const override { element.row = at; }
  std::shared_ptr<const Example> columns_;
};

class SlicesNode final : public DatasetNode {
 public:
  explicit SlicesNode(Example columns) {
    rows_ = columns.size();
    for (const SingleColumn& each : kSingleColumns) require_rows(each.name, columns.*each.column);
    for (const NamedColumns& group : kNamedColumns) {
      for (const auto& [name, column] : columns.*group.columns) {
        require_rows(std::string(group.name) + " \"" + name + "\"", column);
      }
    }
    for (const torch::Tensor& column : columns.more) require_rows("a further column", column);
    columns_ = std::make_shared<const Example>(std::move(columns));
  }

  std::unique_ptr<ElementIterator> iterate(const PassOptions& /*options*/) const override {
    return std::make_unique<SlicesIterator>(columns_, rows_);
  }
  Extent extent(const IteratorOptions& /*part*/) const override { return Extent::of(rows_); }
  Batching batching() const override { return {}; }

 private:
  void require_rows(const std::string& name, const torch::Tensor& column) const {
    if (!column.defined() || (column.dim() > 0 && column.size(0) == rows_)) return;
    fail<InvalidArgument>("[data] from_tensor_slices: the input has ", rows_, " rows, ", name, " has shape ",
                          column.sizes());
  }

  std::shared_ptr<const Example> columns_;
  int64_t rows_ = 0;
};

class RangeIterator final : public CountedIterator {
 public:
  RangeIterator(int64_t start, int64_t step, int64_t count) : CountedIterator(count), start_(start), step_(step) {}

 private:
  void fill(int64_t at, Element& element) const override {
    // The product alone may not fit.
    const uint64_t value = static_cast<uint64_t>(start_) + static_cast<uint64_t>(at) * static_cast<uint64_t>(step_);
    element = Example{.x = at::scalar_tensor(static_cast<int64_t>(value), torch::kLong)};
  }
  int64_t start_;
  int64_t step_;
};

class RangeNode final : public DatasetNode {
 public:
  RangeNode(int64_t start, int64_t stop, int64_t step) : start_(start), step_(step) {
    if (step > 0 ? stop <= start : stop >= start) return;
    const auto low = static_cast<uint64_t>(step > 0 ? start : stop);
    const auto high = static_cast<uint64_t>(step > 0 ? stop : start);
    const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
    const uint64_t count = (high - low) / stride + ((high - low) % stride != 0 ? 1 : 0);
    if (count > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      fail<InvalidArgument>("[data] range: ", start, " to ", stop, " in steps of ", step, " has ", count,
                            " elements, wanted fewer than 2^63");
    }
    count_ = static_cast<int64_t>(count);
  }
  std::unique_ptr<ElementIterator> iterate(const PassOptions& /*options*/) const override {
    return std::make_unique<RangeIterator>(start_, step_, count_);
  }
  Extent extent(const IteratorOptions& /*part*/) const override { return Extent::of(count_); }
  Batching batching() const override { return {}; }

 private:
  int64_t start_;
  int64_t step_;
  int64_t count_ = 0;
};

}  // namespace

NodePtr make_tensors(Example example) {
  return std::make_shared<TensorsNode>(std::move(example));
}
NodePtr make_slices(Example columns) {
  return std::make_shared<SlicesNode>(std::move(columns));
}
NodePtr make_range(int64_t start, int64_t stop, int64_t step) {
  return std::make_shared<RangeNode>(start, stop, step);
}

}  // namespace cohort
