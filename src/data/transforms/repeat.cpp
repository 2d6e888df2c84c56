#include <algorithm>

#include "data/counts.h"
#include "data/node.h"

namespace cohort {

namespace {

class RepeatIterator final : public ElementIterator {
 public:
  // `first` is the epoch of the first round. All rounds read the same part of the files.
  RepeatIterator(const DatasetNode& input, int64_t count, int64_t first, const PassOptions& at)
      : source_(input), count_(count), first_(first), at_(at) {
    start();
  }

  const Example* table() const override { return input_->table(); }

  bool next(Element& element) override {
    while (count_ < 0 || round_ < count_) {
      if (input_->next(element)) {
        empty_ = false;
        return true;
      }
      if (empty_) return false;  // the input is empty
      ++round_;
      if (count_ < 0 || round_ < count_) start();
    }
    return false;
  }

  nlohmann::json save(std::vector<torch::Tensor>& tensors) override {
    return {{"repeat", input_->save(tensors)}, {"first", first_}, {"round", round_}, {"empty", empty_}};
  }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    first_ = tree.at("first").get<int64_t>();
    round_ = tree.at("round").get<int64_t>();
    start();
    empty_ = tree.at("empty").get<bool>();
    input_->restore(tree.at("repeat"), tensors);
  }

 private:
  void start() {
    at_.epoch = static_cast<int64_t>(static_cast<uint64_t>(first_) + static_cast<uint64_t>(round_));
    input_ = source_.iterate(at_);
    empty_ = true;
  }

  const DatasetNode& source_;
  int64_t count_;
  int64_t first_;
  PassOptions at_;
  int64_t round_ = 0;
  bool empty_ = true;  // this round has had no element so far
  std::unique_ptr<ElementIterator> input_;
};

class RepeatNode final : public UnaryNode {
 public:
  RepeatNode(NodePtr input, int64_t count) : UnaryNode(std::move(input)), count_(count) {}

  std::unique_ptr<ElementIterator> iterate(const PassOptions& options) const override {
    // Each pass over the repeated data set goes on where the one before ended.
    const auto rounds = static_cast<uint64_t>(std::max<int64_t>(count_, 1));
    const auto first = static_cast<int64_t>(static_cast<uint64_t>(options.epoch) * rounds);  // may wrap around
    return std::make_unique<RepeatIterator>(input(), count_, first, options);
  }
  Extent extent(const IteratorOptions& part) const override {
    const Extent in = input().extent(part);
    if (count_ == 1 || in.elements == 0) return in;
    return {.elements = repeated(in.elements),
            .examples = repeated(in.examples),
            .regular = in.all_full(input().batching().size)};
  }
  LeftToDevices left_to_devices() const override {
    return passed_on([&](NodePtr input) { return std::make_shared<RepeatNode>(std::move(input), count_); });
  }

 private:
  int64_t repeated(int64_t count) const {
    if (count == 0 || count_ == 0) return 0;
    if (count_ < 0) return kInfiniteCardinality;
    return count < 0 ? count : bounded_product(count, count_);
  }

  int64_t count_;
};

}  // namespace

NodePtr make_repeat(NodePtr input, int64_t count) {
  return std::make_shared<RepeatNode>(std::move(input), count);
}

}  // namespace cohort
