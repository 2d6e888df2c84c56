// The interface of a transformation: a node of the pipeline, and its iterator.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/dataset.h"
#include "data/device_map.h"

namespace cohort {

// An element that flows through a pipeline: an example, or only the number of a row of the source's table. Rows pass
// through shuffle, repeat, take and the like as plain numbers, and batch() gathers a whole batch at once.
// It is as cheap to move as two numbers, however many columns an example has.
struct Element {
  Element() = default;
  Element(Example of) : example(std::make_unique<Example>(std::move(of))) {}  // NOLINT(google-explicit-constructor)

  std::unique_ptr<Example> example;  // null for a row
  int64_t row = -1;                  // 0 or more: this row of the table
};

// An iterator's position, as a tree of plain values, with the tensors beside it.
struct IteratorState {
  nlohmann::json tree;
  std::vector<torch::Tensor> tensors;
};

class ElementIterator {
 public:
  virtual ~ElementIterator() = default;

  // Returns the next element in `element`. Returns false at the end and from then on.
  virtual bool next(Element& element) = 0;
  // Returns the table whose rows the elements are, or null if the elements carry their examples.
  virtual const Example* table() const { return nullptr; }

  // Returns the position as a tree; its tensors are appended to the list.
  virtual nlohmann::json save(std::vector<torch::Tensor>& tensors) = 0;
  virtual void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) = 0;

  // Returns the next element as an example. Returns false at the end.
  bool next_example(Example& example) {
    Element element;
    if (!next(element)) return false;
    example = element.row < 0 ? std::move(*element.example) : example_of_row(element.row);
    return true;
  }
  // Returns a row of the table.
  Example example_of_row(int64_t row) const;

 protected:
  // Returns an element that save_element() saved for this iterator. InvalidArgument: it is not of this pipeline, such
  // as a row where there is no table.
  Element restore_own(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) const;
};

// Tells whether elements are batches.
struct Batching {
  bool batched = false;
  std::optional<int64_t> size = std::nullopt;
  bool full = false;  // every batch has this size: a short last one is dropped
};

// The size of a pass. Each number is known, kInfiniteCardinality or kUnknownCardinality.
struct Extent {
  int64_t elements = kUnknownCardinality;
  int64_t examples = kUnknownCardinality;  // rows of all batches; without batches the elements
  bool regular = false;                    // whether all batches but the last one have the size that batching() says

  // Returns the extent of elements that are no batches.
  static Extent of(int64_t elements) { return {.elements = elements, .examples = elements}; }
  // Returns whether every batch has this size.
  bool all_full(std::optional<int64_t> size) const {
    if (!size || elements == kUnknownCardinality) return false;
    int64_t product = 0;
    if (elements != kInfiniteCardinality && __builtin_mul_overflow(elements, *size, &product)) return false;
    return elements == kInfiniteCardinality ? regular : examples == product;
  }
};

// A pass over the part of the data that a worker reads.
struct PassOptions : IteratorOptions {
  explicit PassOptions(const IteratorOptions& options) : IteratorOptions(options), stream(options.file_shard) {}

  // The stream of the random numbers. Workers that read by themselves have one each, so that they do not draw the same
  // numbers; workers that read the same elements and keep a part of them have the same stream. 0 for a worker alone.
  int64_t stream;
  // Distinguishes nodes with the same seed, which would draw the same random numbers: those of the datasets that
  // interleave() opens, and a random_map() before another one. 0 for the last random_map() outside of interleave().
  uint64_t salt = 0;
};

class DatasetNode;
using NodePtr = std::shared_ptr<const DatasetNode>;

// A pipeline without a change of its batches that can be left to the devices, and that change.
struct LeftToDevices {
  NodePtr batches;
  DeviceMapPtr map;
};

class DatasetNode {
 public:
  virtual ~DatasetNode() = default;
  // Returns an iterator of the pass that the options name; their epoch is not kAuto.
  virtual std::unique_ptr<ElementIterator> iterate(const PassOptions& options) const = 0;
  // Returns the size of a pass over the part of the files that the options name. The function of a map() is taken to
  // leave the sizes of batches as they are.
  virtual Extent extent(const IteratorOptions& part) const = 0;
  virtual Batching batching() const = 0;
  // Returns the number of files that IteratorOptions::file_shards divides, or of the parts into which they can be
  // divided. 0 means none; the other values are those of a cardinality.
  virtual int64_t num_files() const { return 0; }
  // Returns what remains to be done here if devices do what they can; null if they can do nothing.
  virtual LeftToDevices left_to_devices() const { return {}; }

  // Returns the number of elements of a pass over everything.
  int64_t cardinality() const { return extent({}).elements; }
};

// A node with one input. It has the properties of the input unless it overrides them.
class UnaryNode : public DatasetNode {
 public:
  explicit UnaryNode(NodePtr input) : input_(std::move(input)) {}
  Extent extent(const IteratorOptions& part) const override { return input_->extent(part); }
  Batching batching() const override { return input_->batching(); }
  int64_t num_files() const override { return input_->num_files(); }

 protected:
  const DatasetNode& input() const { return *input_; }
  // Returns the input for a thread that may outlive the pipeline's users.
  const NodePtr& shared_input() const { return input_; }
  // Returns what the input leaves to devices if this node passes elements on as they are: make(input) is the node
  // behind another input.
  template <typename Make>
  LeftToDevices passed_on(const Make& make) const {
    LeftToDevices left = input_->left_to_devices();
    if (left.map) left.batches = make(std::move(left.batches));
    return left;
  }

 private:
  NodePtr input_;
};

// Writes an element into a saved state.
nlohmann::json save_element(const Element& element, std::vector<torch::Tensor>& tensors);
Element restore_element(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors);
nlohmann::json save_example(const Example& example, std::vector<torch::Tensor>& tensors);
Example restore_example(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors);

// The functions that make nodes, one for each transformation.
NodePtr make_tensors(Example example);
NodePtr make_slices(Example columns);
NodePtr make_generator(std::function<Dataset::Generator()> make, const GeneratorOptions& options);
NodePtr make_range(int64_t start, int64_t stop, int64_t step);
NodePtr make_map(NodePtr input, Dataset::Map fn, const MapOptions& options);
NodePtr make_device_map(NodePtr input, DeviceMapPtr map);
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
// Passes on the elements of the input, each of which stands for a file that IteratorOptions::file_shards divides.
NodePtr make_files(NodePtr input);

// Returns an iterator of every count-th element, beginning with the index-th.
std::unique_ptr<ElementIterator> sharded(std::unique_ptr<ElementIterator> input, int64_t count, int64_t index);

}  // namespace cohort
