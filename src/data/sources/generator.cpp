#include "data/activity.h"
#include "data/node.h"

namespace cohort {

namespace {

class GeneratorIterator final : public ElementIterator {
 public:
  explicit GeneratorIterator(std::function<Dataset::Generator()> make) : make_(std::move(make)) {}

  bool next(Element& element) override {
    throw_if_stopped();
    if (ended_) return false;
    const Calling calling("the function of from_generator()");
    std::optional<Example> example = generate();
    ended_ = !example;
    if (ended_) return false;
    ++yielded_;
    element = std::move(*example);
    return true;
  }

  nlohmann::json save(std::vector<torch::Tensor>& /*tensors*/) override {
    return {{"yielded", yielded_}, {"ended", ended_}};
  }

  // The function of a user has no position. It is called again, with the next element, and its first ones are dropped.
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& /*tensors*/) override {
    generate_ = nullptr;
    yielded_ = tree.at("yielded").get<int64_t>();
    ended_ = tree.at("ended").get<bool>();
  }

 private:
  // The function is made for the first element, by the thread that takes it, which may be one that has a deadline.
  std::optional<Example> generate() {
    if (!generate_) {
      Dataset::Generator made = make_();
      for (int64_t i = 0; i < yielded_; ++i) {
        throw_if_stopped();
        made();
      }
      generate_ = std::move(made);
    }
    return generate_();
  }

  std::function<Dataset::Generator()> make_;
  Dataset::Generator generate_;
  int64_t yielded_ = 0;
  bool ended_ = false;
};

class GeneratorNode final : public DatasetNode {
 public:
  GeneratorNode(std::function<Dataset::Generator()> make, const GeneratorOptions& options)
      : make_(std::move(make)), options_(options) {}

  std::unique_ptr<ElementIterator> iterate(const PassOptions& /*options*/) const override {
    return std::make_unique<GeneratorIterator>(make_);
  }
  Extent extent(const IteratorOptions& /*part*/) const override {
    const int64_t count = options_.cardinality;
    return options_.batched && count > 0 ? Extent{.elements = count} : Extent::of(count);
  }
  Batching batching() const override { return {.batched = options_.batched}; }

 private:
  std::function<Dataset::Generator()> make_;
  GeneratorOptions options_;
};

}  // namespace

NodePtr make_generator(std::function<Dataset::Generator()> make, const GeneratorOptions& options) {
  return std::make_shared<GeneratorNode>(std::move(make), options);
}

}  // namespace cohort
