// take, skip and shard: they pass some elements of the input.
#include <algorithm>

#include "data/counts.h"
#include "data/node.h"

namespace cohort {

namespace {

// Drops `skip` elements, then passes one of every `stride`, at most `limit` of them (negative: all).
struct Selection {
  int64_t skip = 0;
  int64_t stride = 1;
  int64_t limit = -1;
};

class WindowIterator final : public ElementIterator {
 public:
  WindowIterator(std::unique_ptr<ElementIterator> input, const Selection& window)
      : input_(std::move(input)), window_(window), to_drop_(window.skip) {}

  const Example* table() const override { return input_->table(); }

  bool next(Element& element) override {
    if (window_.limit >= 0 && passed_ >= window_.limit) return false;
    for (; to_drop_ > 0; --to_drop_) {
      if (!input_->next(element)) return false;
    }
    if (!input_->next(element)) return false;
    to_drop_ = window_.stride - 1;
    ++passed_;
    return true;
  }

  nlohmann::json save(std::vector<torch::Tensor>& tensors) override {
    return {{"window", input_->save(tensors)}, {"passed", passed_}, {"to_drop", to_drop_}};
  }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    input_->restore(tree.at("window"), tensors);
    passed_ = tree.at("passed").get<int64_t>();
    to_drop_ = tree.at("to_drop").get<int64_t>();
  }

 private:
  std::unique_ptr<ElementIterator> input_;
  Selection window_;
  int64_t to_drop_;
  int64_t passed_ = 0;
};

class WindowNode final : public UnaryNode {
 public:
  WindowNode(NodePtr input, const Selection& window) : UnaryNode(std::move(input)), window_(window) {}

  std::unique_ptr<ElementIterator> iterate(const PassOptions& options) const override {
    PassOptions all = options;
    // Workers that divide what comes by shard() have to see it in the same order.
    if (window_.stride > 1 && options.file_shards == 1) all.stream = 0;
    return std::make_unique<WindowIterator>(input().iterate(all), window_);
  }
  Extent extent(const IteratorOptions& part) const override {
    const Extent in = input().extent(part);
    const int64_t count = passing(in.elements);
    const Batching batches = input().batching();
    if (!batches.batched || count == 0 || count == kInfiniteCardinality) {
      return {.elements = count, .examples = count, .regular = in.regular};
    }
    if (count == in.elements) return in;  // all, or unknown
    const int64_t size = batches.size.value_or(0);
    if (in.all_full(batches.size))
      return {.elements = count, .examples = bounded_product(count, size), .regular = true};
    if (!in.regular || in.examples < 0) return {.elements = count};
    const int64_t of_last = in.examples - (in.elements - 1) * size;
    const bool with_last = window_.skip + (count - 1) * window_.stride == in.elements - 1;
    return {.elements = count, .examples = (count - 1) * size + (with_last ? of_last : size), .regular = true};
  }
  LeftToDevices left_to_devices() const override {
    return passed_on([&](NodePtr input) { return std::make_shared<WindowNode>(std::move(input), window_); });
  }

 private:
  // Returns how many of so many elements pass.
  int64_t passing(int64_t count) const {
    if (window_.limit == 0) return 0;
    if (count == kInfiniteCardinality) return window_.limit >= 0 ? window_.limit : kInfiniteCardinality;
    if (count < 0) return count;
    const int64_t rest = std::max<int64_t>(count - window_.skip, 0);
    const int64_t every = ceil_div(rest, window_.stride);
    return window_.limit >= 0 ? std::min(every, window_.limit) : every;
  }

  Selection window_;
};

}  // namespace

std::unique_ptr<ElementIterator> sharded(std::unique_ptr<ElementIterator> input, int64_t count, int64_t index) {
  return std::make_unique<WindowIterator>(std::move(input), Selection{.skip = index, .stride = count});
}

NodePtr make_take(NodePtr input, int64_t count) {
  return std::make_shared<WindowNode>(std::move(input), Selection{.limit = count});
}
NodePtr make_skip(NodePtr input, int64_t count) {
  return std::make_shared<WindowNode>(std::move(input), Selection{.skip = count});
}
NodePtr make_shard(NodePtr input, int64_t count, int64_t index) {
  return std::make_shared<WindowNode>(std::move(input), Selection{.skip = index, .stride = count});
}

}  // namespace cohort
