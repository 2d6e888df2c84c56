#include "data/node.h"
#include "data/read_ahead.h"

namespace cohort {

namespace {

class PrefetchIterator final : public ElementIterator {
 public:
  PrefetchIterator(std::unique_ptr<ElementIterator> input, int64_t count, const PrefetchOptions& options)
      : input_(std::move(input)),
        table_(input_->table()),
        ahead_("prefetch", static_cast<std::size_t>(count), options.timeout, [this] { return produce(); }) {}

  const Example* table() const override { return table_; }

  bool next(Element& element) override {
    if (!restored_.empty()) {
      element = std::move(restored_.front());
      restored_.pop_front();
      return true;
    }
    std::optional<Element> item = ahead_.take();
    if (!item) return false;
    element = std::move(*item);
    return true;
  }

  nlohmann::json save(std::vector<torch::Tensor>& tensors) override {
    return ahead_.paused([&](const std::deque<Element>& items, bool ended) -> nlohmann::json {
      nlohmann::json waiting = nlohmann::json::array();
      for (const Element& element : restored_) waiting.push_back(save_element(element, tensors));
      for (const Element& element : items) waiting.push_back(save_element(element, tensors));
      return {{"prefetch", input_->save(tensors)}, {"waiting", waiting}, {"ended", ended || ended_}};
    });
  }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    ahead_.stop();
    input_->restore(tree.at("prefetch"), tensors);
    ended_ = tree.at("ended").get<bool>();
    restored_.clear();
    for (const auto& element : tree.at("waiting")) restored_.push_back(restore_own(element, tensors));
  }

 private:
  std::optional<Element> produce() {
    std::optional<Element> element(std::in_place);
    if (ended_ || !input_->next(*element)) element.reset();
    return element;
  }

  std::unique_ptr<ElementIterator> input_;
  const Example* table_;          // asked for once, because later the input belongs to the thread
  std::deque<Element> restored_;  // elements that come before those that the thread reads
  bool ended_ = false;            // the restored input had ended
  ReadAhead<Element> ahead_;      // the last member, because its thread uses the others
};

class PrefetchNode final : public UnaryNode {
 public:
  PrefetchNode(NodePtr input, int64_t count, const PrefetchOptions& options)
      : UnaryNode(std::move(input)), count_(count), options_(options) {}
  std::unique_ptr<ElementIterator> iterate(const IteratorOptions& options) const override {
    return std::make_unique<PrefetchIterator>(input().iterate(options), count_, options_);
  }
  LeftToDevices left_to_devices() const override {
    return passed_on([&](NodePtr input) { return std::make_shared<PrefetchNode>(std::move(input), count_, options_); });
  }

 private:
  int64_t count_;
  PrefetchOptions options_;
};

}  // namespace

NodePtr make_prefetch(NodePtr input, int64_t count, const PrefetchOptions& options) {
  return std::make_shared<PrefetchNode>(std::move(input), count, options);
}

}  // namespace cohort
