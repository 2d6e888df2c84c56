#include <deque>

#include "base/fail.h"
#include "data/node.h"

namespace cohort {

namespace {

class InterleaveIterator final : public ElementIterator {
 public:
  InterleaveIterator(std::unique_ptr<ElementIterator> input, const std::function<Dataset(Example)>& fn,
                     const InterleaveOptions& options)
      : input_(std::move(input)), fn_(fn), options_(options) {}

  bool next(Element& element) override {
    Example example;
    while (true) {
      fill();
      if (open_.empty()) return false;
      if (turn_ >= open_.size()) turn_ = 0;
      Open& current = open_[turn_];
      if (current.elements->next_example(example)) {
        if (++taken_ >= options_.block_length) pass_turn();
        element = {.example = std::move(example)};
        return true;
      }
      // Exhausted: the next data set of the input takes its place in the cycle.
      taken_ = 0;
      if (!replace(current)) open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(turn_));
    }
  }

  nlohmann::json save(std::vector<torch::Tensor>& tensors) override {
    nlohmann::json open = nlohmann::json::array();
    for (const Open& one : open_) {
      nlohmann::json entry{{"of", save_element({.example = one.of}, tensors)}};
      entry["at"] = one.elements->save(tensors);
      open.push_back(std::move(entry));
    }
    return {{"interleave", input_->save(tensors)}, {"open", open}, {"turn", turn_}, {"taken", taken_}, {"ended", ended_}};
  }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    input_->restore(tree.at("interleave"), tensors);
    open_.clear();
    for (const auto& entry : tree.at("open")) {
      open_.push_back(open(restore_element(entry.at("of"), tensors).example));
      open_.back().elements->restore(entry.at("at"), tensors);
    }
    turn_ = tree.at("turn").get<std::size_t>();
    taken_ = tree.at("taken").get<int64_t>();
    ended_ = tree.at("ended").get<bool>();
  }

 private:
  struct Open {
    Example of;       // the input's element, to open it again after a restore
    Dataset dataset;  // keeps the pipeline alive that `elements` runs
    std::unique_ptr<ElementIterator> elements;
  };

  Open open(Example of) const {
    Dataset dataset = fn_(of);
    auto elements = dataset.node().iterate({});
    return {std::move(of), std::move(dataset), std::move(elements)};
  }

  void fill() {
    Example example;
    while (!ended_ && static_cast<int64_t>(open_.size()) < options_.cycle_length) {
      ended_ = !input_->next_example(example);
      if (!ended_) open_.push_back(open(std::move(example)));
    }
  }

  bool replace(Open& exhausted) {
    Example example;
    if (!ended_) ended_ = !input_->next_example(example);
    if (ended_) return false;
    exhausted = open(std::move(example));
    return true;
  }

  void pass_turn() {
    taken_ = 0;
    ++turn_;
  }

  std::unique_ptr<ElementIterator> input_;
  const std::function<Dataset(Example)>& fn_;
  InterleaveOptions options_;
  std::vector<Open> open_;
  std::size_t turn_ = 0;
  int64_t taken_ = 0;
  bool ended_ = false;
};

class InterleaveNode final : public UnaryNode {
 public:
  InterleaveNode(NodePtr input, std::function<Dataset(Example)> fn, const InterleaveOptions& options)
      : UnaryNode(std::move(input)), fn_(std::move(fn)), options_(options) {}
  std::unique_ptr<ElementIterator> iterate(const IteratorOptions& options) const override {
    return std::make_unique<InterleaveIterator>(input().iterate(options), fn_, options_);
  }
  int64_t cardinality() const override { return kUnknownCardinality; }
  Batching batching() const override { return {}; }

 private:
  std::function<Dataset(Example)> fn_;
  InterleaveOptions options_;
};

}  // namespace

NodePtr make_interleave(NodePtr input, std::function<Dataset(Example)> fn, const InterleaveOptions& options) {
  return std::make_shared<InterleaveNode>(std::move(input), std::move(fn), options);
}

}  // namespace cohort
