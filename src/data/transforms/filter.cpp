#include "data/activity.h"
#include "data/node.h"

namespace cohort {

namespace {

class FilterIterator final : public ElementIterator {
 public:
  FilterIterator(std::unique_ptr<ElementIterator> input, const Dataset::Predicate& predicate)
      : input_(std::move(input)), predicate_(predicate) {}

  const Example* table() const override { return input_->table(); }

  bool next(Element& element) override {
    const Searching searching("filter() has kept none of the elements that came");
    while (input_->next(element)) {
      if (keeps(element)) return true;
    }
    return false;
  }

  nlohmann::json save(std::vector<torch::Tensor>& tensors) override { return {{"filter", input_->save(tensors)}}; }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    input_->restore(tree.at("filter"), tensors);
  }

 private:
  // A row stays a number, so that batch() can gather rows.
  bool keeps(const Element& element) const {
    const Calling calling("the predicate of filter()");
    return element.row >= 0 ? predicate_(input_->example_of_row(element.row)) : predicate_(*element.example);
  }

  std::unique_ptr<ElementIterator> input_;
  const Dataset::Predicate& predicate_;
};

class FilterNode final : public UnaryNode {
 public:
  FilterNode(NodePtr input, Dataset::Predicate predicate)
      : UnaryNode(std::move(input)), predicate_(std::move(predicate)) {}
  std::unique_ptr<ElementIterator> iterate(const PassOptions& options) const override {
    return std::make_unique<FilterIterator>(input().iterate(options), predicate_);
  }
  Extent extent(const IteratorOptions& part) const override {
    return input().extent(part).elements == 0 ? Extent::of(0) : Extent{};
  }

 private:
  Dataset::Predicate predicate_;
};

}  // namespace

NodePtr make_filter(NodePtr input, Dataset::Predicate predicate) {
  return std::make_shared<FilterNode>(std::move(input), std::move(predicate));
}

}  // namespace cohort
