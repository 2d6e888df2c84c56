#include "data/node.h"

namespace cohort {

namespace {

class GeneratorIterator final : public ElementIterator {
 public:
  explicit GeneratorIterator(std::function<Dataset::Generator()> make) : make_(std::move(make)), generate_(make_()) {}

  bool next(Element& element) override {
    if (ended_) return false;
    std::optional<Example> example = generate_();
    ended_ = !example;
    if (ended_) return false;
    ++yielded_;
    element = std::move(*example);
    return true;
  }

  nlohmann::json save(std::vector<torch::Tensor>& /*tensors*/) override {
    return {{"yielded", yielded_}, {"ended", ended_}};
  }

  // The function of a user has no position. It is called again and its first elements are dropped.
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& /*tensors*/) override {
    const auto yielded = tree.at("yielded").get<int64_t>();
    generate_ = make_();
    for (int64_t i = 0; i < yielded; ++i) generate_();
    yielded_ = yielded;
    ended_ = tree.at("ended").get<bool>();
  }

 private:
  std::function<Dataset::Generator()> make_;
  Dataset::Generator generate_;
  int64_t yielded_ = 0;
  bool ended_ = false;
};

class GeneratorNode final : public DatasetNode {
 public:
  GeneratorNode(std::function<Dataset::Generator()> make, const GeneratorOptions& options)
      : make_(std::move(make)), options_(options) {}

  std::unique_ptr<ElementIterator> iterate(const IteratorOptions& /*options*/) const override {
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
