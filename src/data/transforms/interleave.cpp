#include <optional>

#include "base/fail.h"
#include "data/activity.h"
#include "data/node.h"
#include "data/random.h"

namespace cohort {

namespace {

class InterleaveIterator final : public ElementIterator {
 public:
  InterleaveIterator(std::unique_ptr<ElementIterator> input, const std::function<Dataset(Example)>& fn,
                     const InterleaveOptions& options, const PassOptions& at)
      : input_(std::move(input)),
        fn_(fn),
        options_(options),
        at_(at),
        places_(static_cast<std::size_t>(options.cycle_length)) {}

  bool next(Element& element) override {
    const Searching searching("interleave() has come upon no dataset with elements");
    Example example;
    // A turn passes when a block is full or its data set ends; an empty place is filled when its turn comes.
    for (std::size_t idle = 0; idle < places_.size();) {
      std::optional<Open>& place = places_[turn_];
      if (!place && !ended_) {
        ended_ = !input_->next_example(example);
        if (!ended_) place = open(std::move(example), ++opened_);
      }
      if (place && place->elements->next_example(example)) {
        if (++taken_ >= options_.block_length) pass_turn();
        element = std::move(example);
        return true;
      }
      idle = place ? 0 : idle + 1;
      place.reset();
      pass_turn();
    }
    return false;
  }

  nlohmann::json save(std::vector<torch::Tensor>& tensors) override {
    nlohmann::json places = nlohmann::json::array();
    for (const std::optional<Open>& place : places_) {
      nlohmann::json entry;
      if (place) {
        entry["of"] = save_example(place->of, tensors);
        entry["number"] = place->number;
        entry["at"] = place->elements->save(tensors);
      }
      places.push_back(std::move(entry));
    }
    return {{"interleave", input_->save(tensors)},
            {"epoch", at_.epoch},
            {"places", places},
            {"opened", opened_},
            {"turn", turn_},
            {"taken", taken_},
            {"ended", ended_}};
  }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    const auto turn = tree.at("turn").get<std::size_t>();
    if (tree.at("places").size() != places_.size() || turn >= places_.size()) {
      fail<InvalidArgument>("[data] iterator state: turn ", turn, " of a cycle of ", tree.at("places").size(),
                            " datasets, this pipeline's cycle has ", places_.size());
    }
    input_->restore(tree.at("interleave"), tensors);
    at_.epoch = tree.at("epoch").get<int64_t>();
    opened_ = tree.at("opened").get<uint64_t>();
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const auto& entry = tree.at("places").at(i);
      places_[i].reset();
      if (entry.is_null()) continue;
      places_[i] = open(restore_example(entry.at("of"), tensors), entry.at("number").get<uint64_t>());
      places_[i]->elements->restore(entry.at("at"), tensors);
    }
    turn_ = turn;
    taken_ = tree.at("taken").get<int64_t>();
    ended_ = tree.at("ended").get<bool>();
  }

 private:
  struct Open {
    Example of;       // the element of the input, from which the dataset is opened again after a restore
    uint64_t number;  // from 1, in the order of opening
    Dataset dataset;  // keeps the pipeline alive that `elements` runs
    std::unique_ptr<ElementIterator> elements;
  };

  Open open(Example of, uint64_t number) const {
    const Calling calling("the function of interleave()");
    Dataset dataset = fn_(of);
    PassOptions at = at_;
    at.salt = Random(at_.salt, number)();
    auto elements = dataset.node()->iterate(at);
    return {std::move(of), number, std::move(dataset), std::move(elements)};
  }

  void pass_turn() {
    taken_ = 0;
    turn_ = (turn_ + 1) % places_.size();
  }

  std::unique_ptr<ElementIterator> input_;
  const std::function<Dataset(Example)>& fn_;
  InterleaveOptions options_;
  PassOptions at_;  // they hold for the datasets that are still to be opened, too
  std::vector<std::optional<Open>> places_;
  uint64_t opened_ = 0;  // datasets so far
  std::size_t turn_ = 0;
  int64_t taken_ = 0;
  bool ended_ = false;
};

class InterleaveNode final : public UnaryNode {
 public:
  InterleaveNode(NodePtr input, std::function<Dataset(Example)> fn, const InterleaveOptions& options)
      : UnaryNode(std::move(input)), fn_(std::move(fn)), options_(options) {}
  std::unique_ptr<ElementIterator> iterate(const PassOptions& options) const override {
    PassOptions inner = options;
    inner.file_shards = 1;
    inner.file_shard = 0;
    PassOptions outer = inner;
    if (options.file_shards > 1) outer.stream = 0;  // workers that divide the files see them in the same order
    auto files = input().iterate(outer);
    if (options.file_shards > 1) files = sharded(std::move(files), options.file_shards, options.file_shard);
    return std::make_unique<InterleaveIterator>(std::move(files), fn_, options_, inner);
  }
  int64_t num_files() const override { return input().cardinality(); }
  Extent extent(const IteratorOptions& /*part*/) const override { return {}; }
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
