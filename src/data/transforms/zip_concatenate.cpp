// The transformations with two inputs: zip and concatenate.
#include <algorithm>

#include "base/columns.h"
#include "base/fail.h"
#include "data/counts.h"
#include "data/node.h"

namespace cohort {

namespace {

class PairNode : public DatasetNode {
 public:
  PairNode(NodePtr first, NodePtr second) : first_(std::move(first)), second_(std::move(second)) {}

  Batching batching() const override {
    const Batching one = first_->batching();
    const Batching two = second_->batching();
    return {.batched = one.batched && two.batched,
            .size = one.size == two.size ? one.size : std::nullopt,
            .full = one.full && two.full && one.size == two.size};
  }

 protected:
  const DatasetNode& first() const { return *first_; }
  const DatasetNode& second() const { return *second_; }

 private:
  NodePtr first_;
  NodePtr second_;
};

void append_named(NamedTensors& to, NamedTensors& from, const char* group) {
  for (auto& named : from) {
    const bool taken = std::any_of(to.begin(), to.end(), [&](const auto& other) { return other.first == named.first; });
    if (taken) fail<InvalidArgument>("[data] zip: both elements have ", group, " \"", named.first, "\"");
    to.push_back(std::move(named));
  }
  from.clear();
}

// Returns the left inputs as inputs and the right ones as targets, with the other columns of both: named ones under
// their names, the others in "more".
Example side_by_side(Example left, Example right) {
  Example pair{.x = std::move(left.x), .y = std::move(right.x), .inputs = std::move(left.inputs)};
  left.inputs.clear();
  append_named(pair.targets, right.inputs, "inputs that become targets");
  for (Example* side : {&left, &right}) {
    for (const NamedColumns& group : kNamedColumns) append_named(pair.*group.columns, side->*group.columns, group.name);
    for (torch::Tensor* column : {&side->y, &side->weight, &side->mask}) {
      if (column->defined()) pair.more.push_back(std::move(*column));
    }
    for (torch::Tensor& column : side->more) pair.more.push_back(std::move(column));
  }
  return pair;
}

class ZipIterator final : public ElementIterator {
 public:
  ZipIterator(std::unique_ptr<ElementIterator> first, std::unique_ptr<ElementIterator> second)
      : first_(std::move(first)), second_(std::move(second)) {}

  bool next(Element& element) override {
    Example left;
    Example right;
    if (ended_ || !first_->next_example(left) || !second_->next_example(right)) {
      ended_ = true;
      return false;
    }
    element = side_by_side(std::move(left), std::move(right));
    return true;
  }

  nlohmann::json save(std::vector<torch::Tensor>& tensors) override {
    nlohmann::json tree{{"ended", ended_}};
    tree["first"] = first_->save(tensors);
    tree["second"] = second_->save(tensors);
    return tree;
  }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    ended_ = tree.at("ended").get<bool>();
    first_->restore(tree.at("first"), tensors);
    second_->restore(tree.at("second"), tensors);
  }

 private:
  std::unique_ptr<ElementIterator> first_;
  std::unique_ptr<ElementIterator> second_;
  bool ended_ = false;
};

class ZipNode final : public PairNode {
 public:
  using PairNode::PairNode;
  std::unique_ptr<ElementIterator> iterate(const PassOptions& options) const override {
    return std::make_unique<ZipIterator>(first().iterate(options), second().iterate(options));
  }
  Extent extent(const IteratorOptions& part) const override {
    const Extent one = first().extent(part);
    const Extent two = second().extent(part);
    const int64_t count = shorter(one.elements, two.elements);
    if (!batching().batched) return Extent::of(count);
    const bool alike = one.elements == two.elements && one.examples == two.examples && one.regular && two.regular;
    return alike ? one : Extent{.elements = count};
  }

 private:
  static int64_t shorter(int64_t one, int64_t two) {
    if (one == kUnknownCardinality || two == kUnknownCardinality) return kUnknownCardinality;
    if (one == kInfiniteCardinality) return two;
    return two == kInfiniteCardinality ? one : std::min(one, two);
  }
};

class ConcatenateIterator final : public ElementIterator {
 public:
  ConcatenateIterator(std::unique_ptr<ElementIterator> first, std::unique_ptr<ElementIterator> second)
      : first_(std::move(first)), second_(std::move(second)) {}

  bool next(Element& element) override {
    Example example;
    if (!in_second_ && !first_->next_example(example)) in_second_ = true;
    if (in_second_ && !second_->next_example(example)) return false;
    element = std::move(example);
    return true;
  }

  nlohmann::json save(std::vector<torch::Tensor>& tensors) override {
    nlohmann::json tree{{"in_second", in_second_}};
    tree["first"] = first_->save(tensors);
    tree["second"] = second_->save(tensors);
    return tree;
  }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    in_second_ = tree.at("in_second").get<bool>();
    first_->restore(tree.at("first"), tensors);
    second_->restore(tree.at("second"), tensors);
  }

 private:
  std::unique_ptr<ElementIterator> first_;
  std::unique_ptr<ElementIterator> second_;
  bool in_second_ = false;
};

class ConcatenateNode final : public PairNode {
 public:
  using PairNode::PairNode;
  std::unique_ptr<ElementIterator> iterate(const PassOptions& options) const override {
    return std::make_unique<ConcatenateIterator>(first().iterate(options), second().iterate(options));
  }
  Extent extent(const IteratorOptions& part) const override {
    const Extent one = first().extent(part);
    const Extent two = second().extent(part);
    return {.elements = sum(one.elements, two.elements),
            .examples = sum(one.examples, two.examples),
            .regular = one.all_full(batching().size) && two.regular};
  }
  // Returns the smaller number, because each of the two inputs is divided by itself.
  int64_t num_files() const override { return std::min(first().num_files(), second().num_files()); }

 private:
  static int64_t sum(int64_t one, int64_t two) {
    if (one == kInfiniteCardinality || two == kInfiniteCardinality) return kInfiniteCardinality;
    return one < 0 || two < 0 ? kUnknownCardinality : bounded_sum(one, two);
  }
};

}  // namespace

NodePtr make_zip(NodePtr first, NodePtr second) {
  return std::make_shared<ZipNode>(std::move(first), std::move(second));
}
NodePtr make_concatenate(NodePtr first, NodePtr second) {
  return std::make_shared<ConcatenateNode>(std::move(first), std::move(second));
}

}  // namespace cohort
