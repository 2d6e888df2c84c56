#include "data/node.h"
#include "data/read_ahead.h"

namespace cohort {

namespace {

// The input of a prefetch, which its thread uses.
struct AheadInput {
  explicit AheadInput(NodePtr of, const PassOptions& options) : node(std::move(of)), elements(node->iterate(options)) {}

  std::optional<Element> next() {
    std::optional<Element> element(std::in_place);
    if (ended || !elements->next(*element)) element.reset();
    return element;
  }

  NodePtr node;  // the iterator refers to it
  std::unique_ptr<ElementIterator> elements;
  bool ended = false;  // a restored input had ended
};

class PrefetchIterator final : public ElementIterator {
 public:
  PrefetchIterator(std::shared_ptr<AheadInput> input, int64_t count, const PrefetchOptions& options)
      : input_(std::move(input)),
        table_(input_->elements->table()),
        ahead_("prefetch", static_cast<std::size_t>(count), options.timeout,
               [input = input_] { return input->next(); }) {}

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
      return {{"prefetch", input_->elements->save(tensors)}, {"waiting", waiting}, {"ended", ended || input_->ended}};
    });
  }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    ahead_.stop();
    input_->elements->restore(tree.at("prefetch"), tensors);
    input_->ended = tree.at("ended").get<bool>();
    restored_.clear();
    for (const auto& element : tree.at("waiting")) restored_.push_back(restore_own(element, tensors));
  }

 private:
  std::shared_ptr<AheadInput> input_;
  const Example* table_;          // asked for once, because later the input belongs to the thread
  std::deque<Element> restored_;  // elements that come before those that the thread reads
  ReadAhead<Element> ahead_;
};

class PrefetchNode final : public UnaryNode {
 public:
  PrefetchNode(NodePtr input, int64_t count, const PrefetchOptions& options)
      : UnaryNode(std::move(input)), count_(count), options_(options) {}
  std::unique_ptr<ElementIterator> iterate(const PassOptions& options) const override {
    return std::make_unique<PrefetchIterator>(std::make_shared<AheadInput>(shared_input(), options), count_, options_);
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
