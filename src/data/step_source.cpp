#include "data/step_source.h"

#include <algorithm>

#include "base/fail.h"
#include "data/counts.h"
#include "data/node.h"
#include "data/rebatch.h"
#include "data/split.h"

namespace cohort {

namespace {

class WholeSource final : public StepSource {
 public:
  WholeSource(const Dataset& dataset, const PassOptions& options)
      : dataset_(dataset), elements_(dataset.node()->iterate(options)) {}

  bool next(std::vector<Example>& shares) override {
    shares.resize(1);
    return elements_->next_example(shares.front());
  }
  nlohmann::json save(std::vector<torch::Tensor>& tensors) override { return {{"input", elements_->save(tensors)}}; }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    elements_->restore(tree.at("input"), tensors);
  }

 private:
  Dataset dataset_;  // keeps the pipeline alive
  std::unique_ptr<ElementIterator> elements_;
};

// Shares of exact sizes, which go on over the borders of the batches that come in.
class RebatchSource final : public StepSource {
 public:
  RebatchSource(const Dataset& dataset, const PassOptions& options, const InputGroup& group, int64_t size)
      : dataset_(dataset),
        elements_(dataset.node()->iterate(options)),
        rebatch_([this](Example& batch) { return elements_->next_example(batch); },
                 sub_batch_sizes(size, group.workers, group.replicas, group.worker),
                 static_cast<std::size_t>(group.replicas)) {}

  bool next(std::vector<Example>& shares) override { return rebatch_.next(shares); }
  nlohmann::json save(std::vector<torch::Tensor>& tensors) override {
    return {{"input", elements_->save(tensors)}, {"rebatch", rebatch_.save(tensors)}};
  }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    elements_->restore(tree.at("input"), tensors);
    rebatch_.restore(tree.at("rebatch"), tensors);
  }

 private:
  Dataset dataset_;
  std::unique_ptr<ElementIterator> elements_;
  Rebatch rebatch_;
};

// Each batch that comes in is cut into as many pieces as there are replicas in all. When every worker sees all batches
// (`shared`) it takes every workers-th piece of each, as TensorFlow shards the stream of pieces; otherwise all of its
// batch, step by step.
class CutSource final : public StepSource {
 public:
  CutSource(const Dataset& dataset, const PassOptions& options, const InputGroup& group, bool shared)
      : dataset_(dataset), elements_(dataset.node()->iterate(options)), group_(group), shared_(shared) {}

  bool next(std::vector<Example>& shares) override {
    const int64_t pieces = group_.workers * group_.replicas;
    if (at_ == 0 && !elements_->next_example(batch_)) return false;
    const std::vector<int64_t> borders = legacy_borders(batch_.size(), pieces);
    shares.clear();
    for (int64_t j = 0; j < group_.replicas; ++j) {
      const auto piece = static_cast<std::size_t>(shared_ ? j * group_.workers + group_.worker : at_ + j);
      shares.push_back(batch_.rows(borders[piece], borders[piece + 1]));
    }
    if (!shared_) at_ = (at_ + group_.replicas) % pieces;
    return true;
  }

  nlohmann::json save(std::vector<torch::Tensor>& tensors) override {
    nlohmann::json tree{{"input", elements_->save(tensors)}, {"at", at_}};
    if (at_ > 0) tree["batch"] = save_example(batch_, tensors);
    return tree;
  }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    elements_->restore(tree.at("input"), tensors);
    at_ = tree.at("at").get<int64_t>();
    if (at_ < 0 || at_ >= group_.workers * group_.replicas || at_ % group_.replicas != 0) {
      fail<InvalidArgument>("[data] distributed input state: piece ", at_, " of ", group_.workers * group_.replicas);
    }
    if (at_ > 0) batch_ = restore_example(tree.at("batch"), tensors);
  }

 private:
  Dataset dataset_;
  std::unique_ptr<ElementIterator> elements_;
  InputGroup group_;
  bool shared_;
  Example batch_;
  int64_t at_ = 0;  // the next piece of the batch
};

// One element for each replica. At the end the replicas that get none have an empty share, or the step is left out.
class PerReplicaSource final : public StepSource {
 public:
  PerReplicaSource(const Dataset& dataset, const PassOptions& options, const InputGroup& group)
      : dataset_(dataset),
        elements_(dataset.node()->iterate(options)),
        replicas_(static_cast<std::size_t>(group.replicas)),
        full_(drops_partial_steps(dataset, group)) {}

  bool next(std::vector<Example>& shares) override {
    shares.clear();
    for (std::size_t i = 0; i < replicas_; ++i) {
      Example share;
      if (elements_->next_example(share)) {
        last_ = share;
        shares.push_back(std::move(share));
      } else if (i == 0 || full_) {
        return false;
      } else {
        shares.push_back(last_.rows(0, 0));
      }
    }
    return true;
  }
  nlohmann::json save(std::vector<torch::Tensor>& tensors) override { return {{"input", elements_->save(tensors)}}; }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    elements_->restore(tree.at("input"), tensors);
  }

 private:
  Dataset dataset_;
  std::unique_ptr<ElementIterator> elements_;
  std::size_t replicas_;
  bool full_;  // only full steps count
  Example last_;
};

}  // namespace

AutoShard choose_shard(AutoShard asked, const Dataset& dataset, const InputGroup& group) {
  const int64_t files = dataset.node()->num_files();
  // An unknown number of files serves one worker. It needs none to read everything, either.
  const int64_t served = files == kInfiniteCardinality ? group.workers : files == kUnknownCardinality ? 1 : files;
  if (asked == AutoShard::kAuto) return served >= group.workers ? AutoShard::kFile : AutoShard::kData;
  if (asked != AutoShard::kFile || std::max<int64_t>(served, 1) >= group.workers) return asked;
  if (files == 0) {
    fail<InvalidArgument>(
        "[data] auto_shard: there are no files to shard by: interleave() opens none, there are no TFRecord files and "
        "no ",
        "image folder, or fewer examples than a batch; use kData");
  }
  fail<InvalidArgument>("[data] auto_shard: cannot shard by files: ", group.workers, " workers, and ",
                        files < 0 ? std::string("an unknown number of") : std::to_string(files), " files; use kData");
}

std::unique_ptr<StepSource> make_split_source(const Dataset& dataset, IteratorOptions options, const InputGroup& group,
                                              AutoShard shard, bool whole) {
  if (whole) return std::make_unique<WholeSource>(dataset, PassOptions(options));
  if (shard == AutoShard::kFile) {
    options.file_shards = group.workers;
    options.file_shard = group.worker;
  }
  PassOptions pass(options);
  if (shard == AutoShard::kOff) pass.stream = group.worker;
  const std::optional<int64_t> size = dataset.batch_size();
  if (size && shard != AutoShard::kData) return std::make_unique<RebatchSource>(dataset, pass, group, *size);
  return std::make_unique<CutSource>(dataset, pass, group, /*shared=*/shard == AutoShard::kData);
}

std::unique_ptr<StepSource> make_per_replica_source(const Dataset& dataset, const IteratorOptions& options,
                                                    const InputGroup& group) {
  PassOptions pass(options);
  pass.stream = group.worker;
  return std::make_unique<PerReplicaSource>(dataset, pass, group);
}

int64_t steps_of_split(const Dataset& dataset, const InputGroup& group, AutoShard shard, bool whole) {
  const DatasetNode& node = *dataset.node();
  const std::optional<int64_t> size = dataset.batch_size();
  const bool batch_by_batch = whole || shard == AutoShard::kData || (!size && group.ends_alone);
  const int64_t batches = node.cardinality();
  if (batch_by_batch) return batches;
  if (!size) return batches == kInfiniteCardinality ? batches : kUnknownCardinality;
  std::vector<int64_t> examples;
  for (int64_t worker = 0; worker < group.workers; ++worker) {
    const bool files = shard == AutoShard::kFile;
    const IteratorOptions part{.file_shards = files ? group.workers : 1, .file_shard = files ? worker : 0};
    examples.push_back(node.extent(part).examples);
  }
  for (const int64_t which : {kInfiniteCardinality, kUnknownCardinality}) {
    if (std::find(examples.begin(), examples.end(), which) != examples.end()) return which;
  }
  return steps_of_parts(*size, group.replicas, examples);
}

int64_t steps_per_replica(const Dataset& dataset, const InputGroup& group) {
  const int64_t count = dataset.cardinality();
  if (count < 0) return count;
  return drops_partial_steps(dataset, group) ? count / group.replicas : ceil_div(count, group.replicas);
}

bool drops_partial_steps(const Dataset& dataset, const InputGroup& group) {
  return group.ends_alone && dataset.node()->batching().full;
}

}  // namespace cohort
