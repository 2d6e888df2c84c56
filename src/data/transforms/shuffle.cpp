#include <ATen/Context.h>

#include "base/fail.h"
#include "data/node.h"
#include "data/random.h"
#include "device/host_random.h"

namespace cohort {

namespace {

class ShuffleIterator final : public ElementIterator {
 public:
  ShuffleIterator(std::unique_ptr<ElementIterator> input, int64_t size, Random random)
      : input_(std::move(input)), size_(static_cast<std::size_t>(size)), random_(random) {}

  const Example* table() const override { return input_->table(); }

  bool next(Element& element) override {
    while (!ended_ && buffer_.size() < size_) {
      Element fresh;
      ended_ = !input_->next(fresh);
      if (!ended_) buffer_.push_back(std::move(fresh));
    }
    if (buffer_.empty()) return false;
    const std::size_t drawn = random_.below(buffer_.size());
    element = std::move(buffer_[drawn]);
    Element fresh;
    // The next element takes the drawn place, so that the buffer stays full without moving the others.
    if (!ended_) ended_ = !input_->next(fresh);
    if (!ended_) {
      buffer_[drawn] = std::move(fresh);
    } else {
      if (drawn + 1 != buffer_.size()) buffer_[drawn] = std::move(buffer_.back());
      buffer_.pop_back();
    }
    return true;
  }

  nlohmann::json save(std::vector<torch::Tensor>& tensors) override {
    nlohmann::json buffer = nlohmann::json::array();
    for (const Element& element : buffer_) buffer.push_back(save_element(element, tensors));
    return {{"shuffle", input_->save(tensors)}, {"random", random_.state()}, {"ended", ended_}, {"buffer", buffer}};
  }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    input_->restore(tree.at("shuffle"), tensors);
    random_.set_state(tree.at("random").get<uint64_t>());
    ended_ = tree.at("ended").get<bool>();
    const auto& buffer = tree.at("buffer");
    if (buffer.size() > size_) {
      fail<InvalidArgument>("[data] iterator state: its shuffle buffer holds ", buffer.size(), " elements, this one ",
                            size_);
    }
    buffer_.clear();
    for (const auto& element : buffer) buffer_.push_back(restore_own(element, tensors));
  }

 private:
  std::unique_ptr<ElementIterator> input_;
  std::size_t size_;
  Random random_;
  std::vector<Element> buffer_;
  bool ended_ = false;
};

class ShuffleNode final : public UnaryNode {
 public:
  ShuffleNode(NodePtr input, int64_t size, const ShuffleOptions& options)
      : UnaryNode(std::move(input)),
        size_(size),
        seed_(options.seed ? *options.seed : host_generator().current_seed()),
        seeded_(options.seed.has_value()),
        reshuffle_(options.reshuffle_each_iteration) {}

  std::unique_ptr<ElementIterator> iterate(const PassOptions& options) const override {
    Random random(seed_, reshuffle_ ? static_cast<uint64_t>(options.epoch) : 0);
    // An order that a seed or "always the same" asks for is the same on all workers.
    if (!seeded_ && reshuffle_) {
      for (const uint64_t part : {static_cast<uint64_t>(options.stream), options.salt}) {
        if (part != 0) random = Random(random(), part);
      }
    }
    return std::make_unique<ShuffleIterator>(input().iterate(options), size_, random);
  }
  Extent extent(const IteratorOptions& part) const override {
    Extent in = input().extent(part);
    in.regular = in.all_full(input().batching().size);  // a short batch is anywhere
    return in;
  }

 private:
  int64_t size_;
  uint64_t seed_;
  bool seeded_;
  bool reshuffle_;
};

}  // namespace

NodePtr make_shuffle(NodePtr input, int64_t size, const ShuffleOptions& options) {
  return std::make_shared<ShuffleNode>(std::move(input), size, options);
}

}  // namespace cohort
