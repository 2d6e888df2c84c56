#include <algorithm>
#include <atomic>

#include "base/columns.h"
#include "base/fail.h"
#include "cohort/distributed_dataset.h"
#include "cohort/trace.h"
#include "data/counts.h"
#include "data/device_copies.h"
#include "data/known_size.h"
#include "data/node.h"
#include "data/passes.h"
#include "data/read_ahead.h"
#include "data/state.h"
#include "data/step_source.h"
#include "data/worker_steps.h"
#include "strategy/core.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

InputGroup group_of(const StrategyCore& core) {
  const std::vector<int>& pipelines = core.pipelines();
  return {.workers = 1 + *std::max_element(pipelines.begin(), pipelines.end()),
          .worker = pipelines[static_cast<std::size_t>(core.worker_rank())],
          .replicas = static_cast<int64_t>(core.share_leaders().size()),
          .ends_alone = core.workers().ends_alone()};
}

// What the pipeline does, and what is left to the devices.
struct DividedWork {
  Dataset batches;
  DeviceMapPtr map;  // null: nothing
};

DividedWork divide_work(const Dataset& dataset) {
  LeftToDevices left = dataset.node()->left_to_devices();
  if (!left.map) return {.batches = dataset, .map = nullptr};
  return {.batches = dataset.derived(std::move(left.batches)), .map = std::move(left.map)};
}

// The bytes of the batches that are on each device ahead of the step.
class StagedBatches final : public HoldsMemory {
 public:
  HeldBytes held_bytes() const override { return {.staging = bytes_}; }

  // Notes shares of a step, of which so many steps may be there.
  void note(const Shares& shares, int64_t steps) {
    int64_t most = 0;
    for (const Example& share : shares) {
      int64_t bytes = 0;
      for_each_column(share, [&](const torch::Tensor& column) {
        if (column.defined()) bytes += column.numel() * static_cast<int64_t>(column.element_size());
      });
      most = std::max(most, bytes);
    }
    bytes_ = most * steps;
  }

 private:
  std::atomic<int64_t> bytes_ = 0;
};

// The work of the thread that prepares steps: it owns what it needs, because it may be left behind.
class Preparation {
 public:
  // `map`, if there is one, is what remains to be done with a share on its device.
  Preparation(std::unique_ptr<StepSource> steps, DeviceMapPtr map, StrategyCore& core, const InputOptions& options)
      : steps_(std::move(steps)),
        map_(std::move(map)),
        compared_(core.shares_pipeline()),
        copies_(make_device_copies(core, options, map_ != nullptr)),
        steps_ahead_(bounded_sum(1, std::max<int64_t>(0, options.prefetch_steps))) {
    core.memory_holders().add(std::weak_ptr<const HoldsMemory>(staged_));
  }

  // Returns the next step, or nothing at the end.
  std::optional<ArrivingShares> next() {
    const TraceSpan span("input", "prepare a step");
    Shares shares;
    if (ended_ || !steps_->next(shares)) return std::nullopt;
    return begin_copies(std::move(shares), map_.get());
  }

  // Begins to copy shares to their devices; what others are to compare is computed on the way.
  ArrivingShares begin_copies(Shares shares, const DeviceMap* map) {
    const int64_t digest = compared_ ? digest_of(shares) : 0;
    staged_->note(shares, steps_ahead_);
    if (!copies_) return {.shares = std::move(shares), .digest = digest, .arrivals = {}};
    ArrivingShares arriving = copies_->begin(std::move(shares), map);
    arriving.digest = digest;
    return arriving;
  }

  nlohmann::json save(std::vector<torch::Tensor>& tensors) { return steps_->save(tensors); }
  bool ended() const { return ended_; }
  void restore(const nlohmann::json& tree, bool ended, const std::vector<torch::Tensor>& tensors) {
    steps_->restore(tree, tensors);
    ended_ = ended;
  }

 private:
  std::unique_ptr<StepSource> steps_;
  DeviceMapPtr map_;
  bool compared_;                         // other workers take the same shares
  std::unique_ptr<DeviceCopies> copies_;  // null: shares stay as they are
  int64_t steps_ahead_;
  std::shared_ptr<StagedBatches> staged_ = std::make_shared<StagedBatches>();
  bool ended_ = false;  // a restored input had ended
};

}  // namespace

// A step source, run ahead by a thread that also copies the shares to their devices.
class DistributedSource {
 public:
  // `map`: see Preparation.
  DistributedSource(std::unique_ptr<StepSource> steps, DeviceMapPtr map, std::shared_ptr<StrategyCore> core,
                    const InputOptions& options, Pass pass)
      : core_(std::move(core)),
        pass_(std::move(pass)),
        preparation_(std::make_shared<Preparation>(std::move(steps), std::move(map), *core_, options)) {
    join();
    if (options.prefetch_steps <= 0) return;
    ahead_ = std::make_unique<ReadAhead<ArrivingShares>>(
        "distributed input", static_cast<std::size_t>(options.prefetch_steps), options.timeout,
        [preparation = preparation_] { return preparation->next(); });
  }

  std::optional<GlobalBatch> next() {
    const TraceSpan span("input", "wait for input");
    auto step = joint_->next(std::exchange(flags_, 0));
    if (!step) return std::nullopt;
    return GlobalBatch(on_devices(step->shares), step->total, step->some_empty);
  }

  void raise(int64_t flags) { flags_ |= flags; }
  int64_t raised() const { return joint_->raised(); }

  std::string save() {
    return ahead_ ? ahead_->paused(
                        [&](const std::deque<ArrivingShares>& items, bool ended) { return save_with(items, ended); })
                  : save_with({}, false);
  }

  void restore(const std::string& bytes) {
    if (ahead_) ahead_->stop();
    join();
    restore_from(bytes, "distributed input state", [&](const IteratorState& state) {
      pass_.restore(state.tree, [&](const nlohmann::json& tree) { restore_position(tree, state.tensors); });
    });
    join();  // the workers compare the restored pass from now on
  }

 private:
  void join() {
    joint_.reset();  // the thread ends what it began before others begin
    joint_ = make_joint_steps(
        *core_, [this] { return next_here(); }, pass_.options().epoch);
  }

  void restore_position(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) {
    preparation_->restore(tree.at("steps"), tree.at("ended").get<bool>(), tensors);
    restored_.clear();
    for (const auto& step : tree.at("waiting")) {
      Shares shares;
      for (const auto& share : step) shares.push_back(restore_example(share, tensors));
      if (shares.size() != core_->share_leaders().size()) {
        fail<InvalidArgument>("[data] distributed input state: it was saved with ", shares.size(),
                              " replicas, this strategy has ", core_->share_leaders().size());
      }
      // Saved as it was on the devices.
      ArrivingShares arriving = preparation_->begin_copies(std::move(shares), /*map=*/nullptr);
      arriving.wait();
      restored_.push_back({.shares = std::move(arriving.shares), .digest = arriving.digest});
    }
  }

  // Returns this worker's own next shares, or nothing at its end.
  std::optional<JointSteps::OwnStep> next_here() {
    if (restored_.empty()) {
      std::optional<ArrivingShares> step = ahead_ ? ahead_->take() : preparation_->next();
      if (!step) return std::nullopt;
      if (!step->arrivals.empty()) step->wait();
      return JointSteps::OwnStep{.shares = std::move(step->shares), .digest = step->digest};
    }
    std::optional<JointSteps::OwnStep> step = std::move(restored_.front());
    restored_.pop_front();
    return step;
  }

  // Gives each replica its share. Those that take one together copy it from the first of them; what another worker's
  // example of an empty share has left on the host is moved, too; the rest is where it belongs.
  Shares on_devices(const Shares& shares) const {
    Shares each;
    for (int i = 0; i < core_->num_local_replicas(); ++i) {
      const torch::Device device = core_->plan().devices[static_cast<std::size_t>(i)].torch_device;
      each.push_back(shares[core_->local_share(i)].to(device));
    }
    return each;
  }

  std::string save_with(const std::deque<ArrivingShares>& items, bool ended) {
    IteratorState state;
    nlohmann::json waiting = nlohmann::json::array();
    const auto add = [&](const Shares& shares) {
      nlohmann::json step = nlohmann::json::array();
      for (const Example& share : shares) step.push_back(save_example(share, state.tensors));
      waiting.push_back(std::move(step));
    };
    if (joint_->held()) add(joint_->held()->shares);
    for (const JointSteps::OwnStep& step : restored_) add(step.shares);
    for (const ArrivingShares& step : items) {
      step.wait();
      add(step.shares);
    }
    state.tree = pass_.save({{"steps", preparation_->save(state.tensors)},
                             {"waiting", waiting},
                             {"ended", ended || preparation_->ended()}});
    return to_bytes(state);
  }

  std::shared_ptr<StrategyCore> core_;
  Pass pass_;
  std::shared_ptr<Preparation> preparation_;
  std::unique_ptr<JointSteps> joint_;
  int64_t flags_ = 0;
  std::deque<JointSteps::OwnStep> restored_;
  std::unique_ptr<ReadAhead<ArrivingShares>> ahead_;
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
void DistributedIterator::raise(int64_t flags) {
  source_->raise(flags);
}
int64_t DistributedIterator::raised() const {
  return source_->raised();
}
std::string DistributedIterator::save() {
  return source_->save();
}
void DistributedIterator::restore(const std::string& state) {
  source_->restore(state);
}

int64_t DistributedDataset::size() const {
  return known_size(cardinality_, "distributed dataset", "steps");
}

DistributedIterator DistributedDataset::iterator(const IteratorOptions& options) const {
  return DistributedIterator(make_(options));
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
  const InputGroup group = group_of(*core_);
  const AutoShard shard = choose_shard(options.auto_shard, dataset, group);
  const auto make = [core = core_, work = divide_work(dataset), options, group, shard](const IteratorOptions& at) {
    const bool whole = !core->splits_batches();
    const Pass pass(at, work.batches.passes()->under(core));
    return std::make_unique<DistributedSource>(make_split_source(work.batches, pass.options(), group, shard, whole),
                                               work.map, core, options, pass);
  };
  return {make, steps_of_split(dataset, group, shard, !core_->splits_batches())};
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
  const InputGroup group = group_of(*core_);
  const auto make = [core = core_, work = divide_work(dataset), options, group](const IteratorOptions& at) {
    const Pass pass(at, work.batches.passes()->under(core));
    return std::make_unique<DistributedSource>(make_per_replica_source(work.batches, pass.options(), group), work.map,
                                               core, options, pass);
  };
  const int64_t own = steps_per_replica(dataset, group);
  if (own == kInfiniteCardinality) return {make, own};
  // The longest input of a worker decides, and this one knows only its own.
  return {make, core_->workers().known_total(own).value_or(kUnknownCardinality)};
}

}  // namespace cohort
