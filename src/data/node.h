// What a transformation implements: a node of the pipeline, and its iterator.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/dataset.h"

namespace cohort {

// What flows through a pipeline: an example, or only the number of a row of the source's table. Rows pass through
// shuffle, repeat, take and the like as plain numbers, and batch() gathers a whole batch at once.
struct Element {
  Example example;
  int64_t row = -1;  // 0 or more: this row of the table, and `example` is empty
};

// An iterator's position, as a tree of plain values, with the tensors beside it.
struct IteratorState {
  nlohmann::json tree;
  std::vector<torch::Tensor> tensors;
};

class ElementIterator {
 public:
  virtual ~ElementIterator() = default;

  // False at the end, and from then on.
  virtual bool next(Element& element) = 0;
  // The table whose rows the elements are; null: the elements carry their examples.
  virtual const Example* table() const { return nullptr; }

  // Position to and from `tree`; tensors go to (come from) the list.
  virtual nlohmann::json save(std::vector<torch::Tensor>& tensors) = 0;
  virtual void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) = 0;

  // The next element with its example.
  bool next_example(Example& example) {
    Element element;
    if (!next(element)) return false;
    example = materialise(std::move(element));
    return true;
  }
  Example materialise(Element element) const;

 protected:
  // An element that save_element() saved for this iterator. InvalidArgument: it is none of this pipeline's, a row where
  // there is no table or the like.
  Element restore_own(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) const;
};

// Whether elements are batches.
struct Batching {
  bool batched = false;
  std::optional<int64_t> size = std::nullopt;
};

class DatasetNode {
 public:
  virtual ~DatasetNode() = default;
  // The options name the pass: the epoch is not kAuto.
  virtual std::unique_ptr<ElementIterator> iterate(const IteratorOptions& options) const = 0;
  virtual int64_t cardinality() const = 0;
  virtual Batching batching() const = 0;
  // The number of files that IteratorOptions::file_shards divides, or of the parts that they can be divided into; 0:
  // none. As a cardinality.
  virtual int64_t num_files() const { return 0; }
};

using NodePtr = std::shared_ptr<const DatasetNode>;

// A node with one input, whose properties it keeps unless it says otherwise.
class UnaryNode : public DatasetNode {
 public:
  explicit UnaryNode(NodePtr input) : input_(std::move(input)) {}
  int64_t cardinality() const override { return input_->cardinality(); }
  Batching batching() const override { return input_->batching(); }
  int64_t num_files() const override { return input_->num_files(); }

 protected:
  const DatasetNode& input() const { return *input_; }

 private:
  NodePtr input_;
};

// Elements in saved states.
nlohmann::json save_element(const Element& element, std::vector<torch::Tensor>& tensors);
Element restore_element(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors);

// The makers, one a transformation.
NodePtr make_tensors(Example example);
NodePtr make_slices(Example columns);
NodePtr make_generator(std::function<Dataset::Generator()> make, const GeneratorOptions& options);
NodePtr make_range(int64_t start, int64_t stop, int64_t step);
NodePtr make_map(NodePtr input, Dataset::Map fn, const MapOptions& options);
NodePtr make_random_map(NodePtr input, Dataset::RandomMap fn, std::optional<uint64_t> seed, const MapOptions& options);
NodePtr make_batch(NodePtr input, int64_t size, const BatchOptions& options);
NodePtr make_unbatch(NodePtr input);
NodePtr make_shuffle(NodePtr input, int64_t size, const ShuffleOptions& options);
NodePtr make_repeat(NodePtr input, int64_t count);
NodePtr make_take(NodePtr input, int64_t count);
NodePtr make_skip(NodePtr input, int64_t count);
NodePtr make_filter(NodePtr input, Dataset::Predicate predicate);
NodePtr make_zip(NodePtr first, NodePtr second);
NodePtr make_concatenate(NodePtr first, NodePtr second);
NodePtr make_interleave(NodePtr input, std::function<Dataset(Example)> fn, const InterleaveOptions& options);
NodePtr make_memory_cache(NodePtr input);
NodePtr make_file_cache(NodePtr input, std::filesystem::path file);
NodePtr make_prefetch(NodePtr input, int64_t count, const PrefetchOptions& options);
NodePtr make_shard(NodePtr input, int64_t count, int64_t index);
// The input's elements, each of which stands for a file: they are what IteratorOptions::file_shards divides.
NodePtr make_files(NodePtr input);

// Every count-th element of an iterator, beginning with the index-th.
std::unique_ptr<ElementIterator> sharded(std::unique_ptr<ElementIterator> input, int64_t count, int64_t index);

}  // namespace cohort
