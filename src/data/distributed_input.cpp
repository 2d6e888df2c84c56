#include <numeric>

#include "base/fail.h"
#include "cohort/distributed_dataset.h"
#include "data/node.h"
#include "data/read_ahead.h"
#include "data/rebatch.h"
#include "data/split.h"
#include "data/state.h"
#include "strategy/core.h"

namespace cohort {

// Where a step's shares come from; kinds below.
class StepSource {
 public:
  virtual ~StepSource() = default;
  virtual bool next(std::vector<Example>& shares) = 0;
  virtual nlohmann::json save(std::vector<torch::Tensor>& tensors) = 0;
  virtual void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) = 0;
};

namespace {

// One dataset of global batches: rebatched by size where it is known, cut batch by batch otherwise.
class SplitSource final : public StepSource {
 public:
  SplitSource(const Dataset& dataset, const IteratorOptions& options, std::size_t replicas, bool whole)
      : dataset_(dataset), elements_(dataset.node().iterate(options)), replicas_(replicas), whole_(whole) {
    const std::optional<int64_t> size = dataset.batch_size();
    if (whole || !size) return;
    rebatch_.emplace([this](Example& batch) { return elements_->next_example(batch); },
                     sub_batch_sizes(*size, 1, static_cast<int64_t>(replicas), 0), replicas);
  }

  bool next(std::vector<Example>& shares) override {
    if (rebatch_) return rebatch_->next(shares);
    Example batch;
    if (!elements_->next_example(batch)) return false;
    shares.clear();
    if (whole_) {
      shares.push_back(std::move(batch));
      return true;
    }
    const std::vector<int64_t> borders = legacy_borders(batch.size(), static_cast<int64_t>(replicas_));
    for (std::size_t i = 0; i < replicas_; ++i) shares.push_back(batch.rows(borders[i], borders[i + 1]));
    return true;
  }

  nlohmann::json save(std::vector<torch::Tensor>& tensors) override {
    nlohmann::json tree{{"input", elements_->save(tensors)}};
    if (rebatch_) tree["rebatch"] = rebatch_->save(tensors);
    return tree;
  }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) override {
    elements_->restore(tree.at("input"), tensors);
    if (rebatch_) rebatch_->restore(tree.at("rebatch"), tensors);
  }

 private:
  Dataset dataset_;  // keeps the pipeline alive
  std::unique_ptr<ElementIterator> elements_;
  std::size_t replicas_;
  bool whole_;
  std::optional<Rebatch> rebatch_;
};

// The user's own dataset of per-replica batches: each replica takes one element a step.
class PerReplicaSource final : public StepSource {
 public:
  PerReplicaSource(const Dataset& dataset, const IteratorOptions& options, std::size_t replicas)
      : dataset_(dataset), elements_(dataset.node().iterate(options)), replicas_(replicas) {}

  bool next(std::vector<Example>& shares) override {
    shares.clear();
    for (std::size_t i = 0; i < replicas_; ++i) {
      Example share;
      if (elements_->next_example(share)) {
        last_ = share;
        shares.push_back(std::move(share));
      } else if (i == 0) {
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
  Example last_;
};

using Shares = std::vector<Example>;

}  // namespace

// A step source, run ahead by a thread that also copies the shares to their devices.
class DistributedSource {
 public:
  DistributedSource(std::unique_ptr<StepSource> steps, std::shared_ptr<StrategyCore> core, const InputOptions& options)
      : steps_(std::move(steps)), core_(std::move(core)) {
    if (options.prefetch_steps <= 0) return;
    ahead_ = std::make_unique<ReadAhead<Shares>>("distributed input", static_cast<std::size_t>(options.prefetch_steps),
                                                 options.timeout, [this] { return produce(); });
  }

  std::optional<GlobalBatch> next() {
    std::optional<Shares> shares;
    if (!restored_.empty()) {
      shares = std::move(restored_.front());
      restored_.pop_front();
    } else {
      shares = ahead_ ? ahead_->take() : produce();
    }
    if (!shares) return std::nullopt;
    int64_t total = 0;
    for (const Example& share : *shares) total += share.size();
    return GlobalBatch(std::move(*shares), total);
  }

  std::string save() {
    return ahead_ ? ahead_->paused([&](const std::deque<Shares>& items, bool ended) { return save_with(items, ended); })
                  : save_with({}, false);
  }

  void restore(const std::string& bytes) {
    if (ahead_) ahead_->stop();
    restore_from(bytes, "distributed input state", [&](const IteratorState& state) {
      steps_->restore(state.tree.at("steps"), state.tensors);
      ended_ = state.tree.at("ended").get<bool>();
      restored_.clear();
      for (const auto& step : state.tree.at("waiting")) {
        Shares shares;
        for (const auto& share : step) shares.push_back(restore_element(share, state.tensors).example);
        if (shares.size() != static_cast<std::size_t>(core_->num_local_replicas())) {
          fail<InvalidArgument>("[data] distributed input state: it was saved with ", shares.size(),
                                " replicas, this strategy has ", core_->num_local_replicas());
        }
        restored_.push_back(to_devices(std::move(shares)));
      }
    });
  }

 private:
  std::optional<Shares> produce() {
    Shares shares;
    if (ended_ || !steps_->next(shares)) return std::nullopt;
    return to_devices(std::move(shares));
  }

  Shares to_devices(Shares shares) const {
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const torch::Device device = core_->plan().devices[i].torch_device;
      if (!device.is_cpu()) shares[i] = shares[i].to(device);
    }
    return shares;
  }

  std::string save_with(const std::deque<Shares>& items, bool ended) {
    IteratorState state;
    nlohmann::json waiting = nlohmann::json::array();
    const auto add = [&](const Shares& shares) {
      nlohmann::json step = nlohmann::json::array();
      for (const Example& share : shares) step.push_back(save_element({.example = share}, state.tensors));
      waiting.push_back(std::move(step));
    };
    for (const Shares& shares : restored_) add(shares);
    for (const Shares& shares : items) add(shares);
    state.tree = {{"steps", steps_->save(state.tensors)}, {"waiting", waiting}, {"ended", ended || ended_}};
    return to_bytes(state);
  }

  std::unique_ptr<StepSource> steps_;
  std::shared_ptr<StrategyCore> core_;
  std::deque<Shares> restored_;
  bool ended_ = false;
  std::unique_ptr<ReadAhead<Shares>> ahead_;  // the last member: its thread uses the others
};

DistributedIterator::DistributedIterator(std::unique_ptr<DistributedSource> source) : source_(std::move(source)) {}
DistributedIterator::DistributedIterator(DistributedIterator&&) noexcept = default;
DistributedIterator& DistributedIterator::operator=(DistributedIterator&&) noexcept = default;
DistributedIterator::~DistributedIterator() = default;

std::optional<GlobalBatch> DistributedIterator::next() {
  if (const Replica* replica = Replica::current()) {
    fail<FailedPrecondition>("[data] next: called inside replica ", replica->id(),
                             "; take the batch outside and pass it to run()");
  }
  return source_->next();
}
std::string DistributedIterator::save() {
  return source_->save();
}
void DistributedIterator::restore(const std::string& state) {
  source_->restore(state);
}

DistributedIterator DistributedDataset::iterator(const IteratorOptions& options) const {
  return DistributedIterator(make_(options));
}
DistributedDataset::Cursor::Cursor(std::shared_ptr<DistributedIterator> iterator)
    : iterator_(std::move(iterator)), current_(iterator_->next()) {}
DistributedDataset::Cursor& DistributedDataset::Cursor::operator++() {
  current_ = iterator_->next();
  return *this;
}
DistributedDataset::Cursor DistributedDataset::begin() const {
  return Cursor(std::make_shared<DistributedIterator>(iterator()));
}

DistributedDataset Strategy::distribute(const Dataset& dataset) const {
  return distribute(dataset, InputOptions{});
}

DistributedDataset Strategy::distribute(const Dataset& dataset, const InputOptions& options) const {
  require_cross_replica("distribute");
  if (!dataset.is_batched()) {
    fail<InvalidArgument>("[strategy] distribute: the dataset is not batched; call batch(global batch size) on it");
  }
  const auto make = [core = core_, dataset, options](const IteratorOptions& at) {
    const auto replicas = static_cast<std::size_t>(core->num_local_replicas());
    auto steps =
        std::make_unique<SplitSource>(dataset, at, replicas, /*whole=*/!core->plan().rebatch_input || replicas == 1);
    return std::make_unique<DistributedSource>(std::move(steps), core, options);
  };
  return {make, dataset.cardinality()};
}

DistributedDataset Strategy::distribute_from_function(const std::function<Dataset(const InputContext&)>& fn) const {
  return distribute_from_function(fn, InputOptions{});
}

DistributedDataset Strategy::distribute_from_function(const std::function<Dataset(const InputContext&)>& fn,
                                                      const InputOptions& options) const {
  require_cross_replica("distribute_from_function");
  const Dataset dataset = fn(input_context());
  if (!dataset.is_batched()) {
    fail<InvalidArgument>(
        "[strategy] distribute_from_function: the dataset is not batched; batch it by the per-replica batch size");
  }
  const auto replicas = static_cast<int64_t>(num_local_replicas());
  const auto make = [core = core_, dataset, options, replicas](const IteratorOptions& at) {
    auto steps = std::make_unique<PerReplicaSource>(dataset, at, static_cast<std::size_t>(replicas));
    return std::make_unique<DistributedSource>(std::move(steps), core, options);
  };
  const int64_t count = dataset.cardinality();
  return {make, count < 0 ? count : (count + replicas - 1) / replicas};
}

}  // namespace cohort
