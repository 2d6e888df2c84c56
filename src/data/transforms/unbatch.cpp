#include "base/columns.h"
#include "data/activity.h"
#include "data/node.h"

namespace cohort {

namespace {

class UnbatchIterator final : public ElementIterator {
 public:
  explicit UnbatchIterator(std::unique_ptr<ElementIterator> input) : input_(std::move(input)) {}

  bool next(Element& element) override {
    const Searching searching("unbatch() has come upon no batch with rows");
    while (at_ >= rows_) {
      if (!input_->next_example(batch_)) return false;
      rows_ = batch_.size();
      at_ = 0;
    }
    element = map_columns(batch_, [&](const torch::Tensor& column) { return column.select(0, at_); });
    ++at_;
    return true;
  }

  nlohmann::json save(std::vector<torch::Tensor>& tensors) override {
    return {{"unbatch", input_->save(tensors)},
            {"at", at_},
            {"rows", rows_},
            {"batch", rows_ > 0 ? save_example(batch_, tensors) : nlohmann::json()}};
  }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    input_->restore(tree.at("unbatch"), tensors);
    at_ = tree.at("at").get<int64_t>();
    rows_ = tree.at("rows").get<int64_t>();
    if (rows_ > 0) batch_ = restore_example(tree.at("batch"), tensors);
  }

 private:
  std::unique_ptr<ElementIterator> input_;
  Example batch_;
  int64_t rows_ = 0;
  int64_t at_ = 0;
};

class UnbatchNode final : public UnaryNode {
 public:
  using UnaryNode::UnaryNode;
  std::unique_ptr<ElementIterator> iterate(const PassOptions& options) const override {
    return std::make_unique<UnbatchIterator>(input().iterate(options));
  }
  Extent extent(const IteratorOptions& part) const override {
    return Extent::of(input().extent(part).elements == kInfiniteCardinality ? kInfiniteCardinality
                                                                            : kUnknownCardinality);
  }
  Batching batching() const override { return {}; }
};

}  // namespace

NodePtr make_unbatch(NodePtr input) {
  return std::make_shared<UnbatchNode>(std::move(input));
}

}  // namespace cohort
