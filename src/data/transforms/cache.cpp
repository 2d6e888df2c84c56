#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <tuple>

#include "base/atomic_file.h"
#include "base/fail.h"
#include "data/node.h"
#include "data/state.h"

namespace cohort {

namespace {

// The elements of a complete pass. All iterators of the node over the same files share them.
struct Store {
  std::mutex mutex;
  std::shared_ptr<const std::vector<Example>> complete;

  std::shared_ptr<const std::vector<Example>> get() {
    const std::lock_guard lock(mutex);
    return complete;
  }
  void set(std::vector<Example> examples) {
    const std::lock_guard lock(mutex);
    if (!complete) complete = std::make_shared<const std::vector<Example>>(std::move(examples));
  }
};

// The stores of a node: one for each part of the files that a worker may have.
class Stores {
 public:
  std::shared_ptr<Store> of(const PassOptions& options) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Store>& store = stores_[{options.file_shards, options.file_shard, options.stream}];
    if (!store) store = std::make_shared<Store>();
    return store;
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::shared_ptr<Store>> stores_;
};

class CacheIterator final : public ElementIterator {
 public:
  using Finish = std::function<void(const std::vector<Example>&)>;
  using Begin = std::function<std::unique_ptr<ElementIterator>()>;

  // `begin` makes an iterator that is at the first element of the input.
  CacheIterator(Begin begin, std::shared_ptr<Store> store, Finish finish)
      : begin_(std::move(begin)),
        input_(begin_()),
        store_(std::move(store)),
        finish_(std::move(finish)),
        kept_(store_->get()) {}

  bool next(Element& element) override {
    if (kept_) {
      if (at_ >= kept_->size()) return false;
      element = (*kept_)[at_++];
      return true;
    }
    Example example;
    if (ended_ || !next_of_input(example)) {
      if (!ended_ && from_start_) complete();
      ended_ = true;
      return false;
    }
    ++at_;
    element = std::move(example);
    return true;
  }

  nlohmann::json save(std::vector<torch::Tensor>& tensors) override {
    nlohmann::json tree{{"at", at_}, {"ended", ended_}};
    if (!kept_) tree["cache"] = input_->save(tensors);
    return tree;
  }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    at_ = tree.at("at").get<std::size_t>();
    ended_ = tree.at("ended").get<bool>();
    seen_.clear();
    if (!kept_) kept_ = store_->get();
    if (kept_) return;
    from_start_ = at_ == 0 || !tree.contains("cache");
    input_ = begin_();
    if (tree.contains("cache")) {
      input_->restore(tree.at("cache"), tensors);
      return;
    }
    // The position lies in a cache that this process does not have. The input gives the same elements.
    Example skipped;
    for (std::size_t i = 0; i < at_ && next_of_input(skipped); ++i) {
    }
  }

 private:
  // Takes an element of the input and notes it, as long as none is missing.
  bool next_of_input(Example& example) {
    const bool whole = std::exchange(from_start_, false);  // stays so if the input throws: the pass lacks an element
    const bool more = input_->next_example(example);
    from_start_ = whole;
    if (more && whole) seen_.push_back(example);
    return more;
  }

  void complete() {
    if (finish_) finish_(seen_);
    store_->set(std::move(seen_));
  }

  Begin begin_;
  std::unique_ptr<ElementIterator> input_;
  std::shared_ptr<Store> store_;
  Finish finish_;
  std::shared_ptr<const std::vector<Example>> kept_;
  std::vector<Example> seen_;
  std::size_t at_ = 0;
  bool from_start_ = true;  // seen_ holds all elements so far
  bool ended_ = false;
};

// Returns the function that begins the pass that fills the cache. It is the input's first pass, whichever epoch asks
// for it, so that a run that is resumed in a later epoch has the same elements as one that was not interrupted.
CacheIterator::Begin first_pass(const DatasetNode& input, PassOptions options) {
  options.epoch = 0;
  return [&input, options] { return input.iterate(options); };
}

class MemoryCacheNode final : public UnaryNode {
 public:
  using UnaryNode::UnaryNode;
  std::unique_ptr<ElementIterator> iterate(const PassOptions& options) const override {
    return std::make_unique<CacheIterator>(first_pass(input(), options), stores_->of(options), nullptr);
  }

 private:
  std::shared_ptr<Stores> stores_ = std::make_shared<Stores>();
};

// Writes the cache to a file in the form of a saved state: elements in the tree, columns beside it.
void write_cache(const std::filesystem::path& file, const std::vector<Example>& examples) {
  IteratorState state{.tree = nlohmann::json::array(), .tensors = {}};
  for (const Example& example : examples) state.tree.push_back(save_example(example, state.tensors));
  AtomicFile out(file);
  out.write(to_bytes(state));
  out.commit();
}

std::vector<Example> read_cache(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const IteratorState state = from_bytes(bytes, file.string());
  std::vector<Example> examples;
  try {
    for (const auto& element : state.tree) examples.push_back(restore_example(element, state.tensors));
  } catch (const std::exception& error) {
    fail<DataLoss>("[data] cache: ", file.string(), ": ", error.what());
  }
  return examples;
}

class FileCacheNode final : public UnaryNode {
 public:
  FileCacheNode(NodePtr input, std::filesystem::path file) : UnaryNode(std::move(input)), file_(std::move(file)) {}

  std::unique_ptr<ElementIterator> iterate(const PassOptions& options) const override {
    const std::shared_ptr<Store> store = stores_->of(options);
    const std::filesystem::path file = file_of(options);
    if (!store->get() && std::filesystem::exists(file)) store->set(read_cache(file));
    return std::make_unique<CacheIterator>(
        first_pass(input(), options), store,
        [file](const std::vector<Example>& examples) { write_cache(file, examples); });
  }

 private:
  // Returns the file of a cache. Workers with different files or random numbers have different ones.
  std::filesystem::path file_of(const PassOptions& options) const {
    std::filesystem::path file = file_;
    if (options.file_shards > 1) return file += c10::str("-", options.file_shard, "-of-", options.file_shards);
    return options.stream == 0 ? file : file += c10::str("-worker-", options.stream);
  }

  std::filesystem::path file_;
  std::shared_ptr<Stores> stores_ = std::make_shared<Stores>();
};

}  // namespace

NodePtr make_memory_cache(NodePtr input) {
  return std::make_shared<MemoryCacheNode>(std::move(input));
}
NodePtr make_file_cache(NodePtr input, std::filesystem::path file) {
  return std::make_shared<FileCacheNode>(std::move(input), std::move(file));
}

}  // namespace cohort
