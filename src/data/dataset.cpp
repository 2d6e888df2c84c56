#include "cohort/dataset.h"

#include "base/fail.h"
#include "data/known_size.h"
#include "data/node.h"
#include "data/passes.h"

namespace cohort {

namespace {

void require_positive(const char* method, int64_t value) {
  if (value < 1) fail<InvalidArgument>("[data] ", method, ": got ", value, ", wanted 1 or more");
}

// An iterator that keeps its pipeline alive. Iterators refer to nodes, and the caller's Dataset may be a temporary.
class OwningIterator final : public ElementIterator {
 public:
  OwningIterator(std::shared_ptr<const DatasetNode> node, Pass pass)
      : node_(std::move(node)), pass_(std::move(pass)), elements_(node_->iterate(PassOptions(pass_.options()))) {}

  bool next(Element& element) override { return elements_->next(element); }
  const Example* table() const override { return elements_->table(); }
  nlohmann::json save(std::vector<torch::Tensor>& tensors) override { return pass_.save(elements_->save(tensors)); }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    pass_.restore(tree, [&](const nlohmann::json& position) { elements_->restore(position, tensors); });
  }

 private:
  std::shared_ptr<const DatasetNode> node_;
  Pass pass_;
  std::unique_ptr<ElementIterator>
      elements_;  // the last member, because it is destroyed before the objects that it refers to
};

}  // namespace

Dataset::Dataset(std::shared_ptr<const DatasetNode> node)
    : node_(std::move(node)), passes_(std::make_shared<PassCounters>()) {}

Dataset Dataset::derived(std::shared_ptr<const DatasetNode> node) const {
  Dataset made = *this;
  made.node_ = std::move(node);
  return made;
}

Dataset Dataset::from_tensors(Example example) {
  return Dataset(make_tensors(std::move(example)));
}
Dataset Dataset::from_tensor_slices(Example columns) {
  return Dataset(make_slices(std::move(columns)));
}
Dataset Dataset::from_tensor_slices(const torch::Tensor& x, const torch::Tensor& y, const torch::Tensor& weight) {
  return Dataset(make_slices({.x = x, .y = y, .weight = weight}));
}
Dataset Dataset::from_generator(std::function<Generator()> make, const GeneratorOptions& options) {
  return Dataset(make_generator(std::move(make), options));
}
Dataset Dataset::range(int64_t stop) {
  return range(0, stop, 1);
}
Dataset Dataset::range(int64_t start, int64_t stop, int64_t step) {
  if (step == 0) fail<InvalidArgument>("[data] range: the step is 0");
  return Dataset(make_range(start, stop, step));
}

Dataset Dataset::map(Map fn, const MapOptions& options) const {
  require_positive("map: num_parallel_calls", options.num_parallel_calls);
  return derived(make_map(node_, std::move(fn), options));
}
Dataset Dataset::random_map(RandomMap fn, const RandomMapOptions& options) const {
  require_positive("random_map: num_parallel_calls", options.threads.num_parallel_calls);
  return Dataset(make_random_map(node_, std::move(fn), options.seed, options.threads));
}
Dataset Dataset::batch(int64_t size, const BatchOptions& options) const {
  require_positive("batch", size);
  return derived(make_batch(node_, size, options));
}
Dataset Dataset::unbatch() const {
  return derived(make_unbatch(node_));
}
Dataset Dataset::shuffle(int64_t size, const ShuffleOptions& options) const {
  require_positive("shuffle", size);
  return Dataset(make_shuffle(node_, size, options));
}
Dataset Dataset::repeat(int64_t count) const {
  return derived(make_repeat(node_, count < 0 ? kInfiniteCardinality : count));
}
Dataset Dataset::take(int64_t count) const {
  return count < 0 ? *this : derived(make_take(node_, count));
}
Dataset Dataset::skip(int64_t count) const {
  if (count < 0) fail<InvalidArgument>("[data] skip: got ", count, ", wanted 0 or more");
  return derived(make_skip(node_, count));
}
Dataset Dataset::filter(Predicate predicate) const {
  return derived(make_filter(node_, std::move(predicate)));
}
Dataset Dataset::zip(const Dataset& other) const {
  return derived(make_zip(node_, other.node_));
}
Dataset Dataset::concatenate(const Dataset& other) const {
  return derived(make_concatenate(node_, other.node_));
}
Dataset Dataset::interleave(std::function<Dataset(Example)> fn, const InterleaveOptions& options) const {
  require_positive("interleave: cycle_length", options.cycle_length);
  require_positive("interleave: block_length", options.block_length);
  return derived(make_interleave(node_, std::move(fn), options));
}
Dataset Dataset::cache() const {
  return derived(make_memory_cache(node_));
}
Dataset Dataset::cache(const std::filesystem::path& file) const {
  return derived(make_file_cache(node_, file));
}
Dataset Dataset::prefetch(int64_t count, const PrefetchOptions& options) const {
  // So many elements bridge an uneven step without holding much memory.
  constexpr int64_t kAutoCount = 4;
  if (count == 0) return *this;
  return derived(make_prefetch(node_, count < 0 ? kAutoCount : count, options));
}
Dataset Dataset::shard(int64_t count, int64_t index) const {
  require_positive("shard: count", count);
  if (index < 0 || index >= count) fail<InvalidArgument>("[data] shard: index ", index, " of ", count, " shards");
  return derived(make_shard(node_, count, index));
}

int64_t Dataset::cardinality() const {
  return node_->cardinality();
}
int64_t Dataset::size() const {
  return known_size(cardinality(), "dataset", "elements");
}
bool Dataset::is_batched() const {
  return node_->batching().batched;
}
std::optional<int64_t> Dataset::batch_size() const {
  return node_->batching().size;
}

Iterator Dataset::iterator(const IteratorOptions& options) const {
  return Iterator(std::make_unique<OwningIterator>(node_, Pass(options, passes_->plain())));
}

Dataset::Cursor Dataset::begin() const {
  return Cursor(std::make_shared<Iterator>(iterator()));
}

}  // namespace cohort
