// TrainingInput: the batches of a training's steps, and what its workers agree on between two of them.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cohort/distributed_dataset.h"
#include "train/loop/position.h"

namespace cohort {

struct TrainingInputOptions {
  // Whether an epoch is a pass over the data of its own; otherwise one iterator goes through all of them.
  bool pass_an_epoch = false;
  // Whether a callback of this worker has stopped the training. Empty: nothing stops it.
  std::function<bool()> stop = {};
};

// One thread at a time; all workers make the same calls.
class TrainingInput {
 public:
  TrainingInput(const Strategy& strategy, DistributedDataset data, TrainingInputOptions options = {});

  const DistributedDataset& data() const { return data_; }
  bool begun() const { return iterator_.has_value(); }

  // Before the steps of an epoch. The iterator that is there goes on where it should, or where restore() has put it.
  void begin_epoch(int64_t epoch);
  // Returns the next step's batch without taking it; null at the end of the data, and where the training ends.
  const GlobalBatch* peek();
  std::optional<GlobalBatch> next();
  // Collective, after an epoch: a stop that any worker wants by now counts from here on.
  void end_epoch() { stopped_ = any_worker("end of an epoch", wants_stop()); }

  // Whether the training ends here. Of several workers a callback may have stopped only one, so they agree on it: at
  // the end of an epoch, and within it with the next batch, a step later.
  bool stopped() const { return several() ? stopped_ : stopped_ || wants_stop(); }

  // What says that this worker is to be preempted; asked before every step.
  void listen_to(std::function<bool()> told) { told_ = std::move(told); }
  bool listens() const { return told_ != nullptr; }
  bool told() const { return told_ && told_(); }
  // Whether any worker is preempted: all leave the training after the step whose batch came last.
  bool preempted() const { return preempted_; }

  // This worker's position, between two steps; empty where the next epoch begins, or before the first step.
  std::string save(bool epoch_done = false);
  // Collective: what a stop that was wanted by now comes to, between two steps or (epoch_done) after an epoch.
  Ending ending(bool epoch_done) const;
  // Collective. False, and at the beginning of the position's epoch, where its input is another one's or none.
  bool restore(const TrainingPosition& position);

 private:
  bool several() const;
  bool wants_stop() const { return options_.stop && options_.stop(); }
  bool any_worker(const std::string& what, bool mine) const;
  void restart(int64_t epoch);

  Strategy strategy_;
  DistributedDataset data_;
  TrainingInputOptions options_;
  std::function<bool()> told_;
  std::optional<DistributedIterator> iterator_;
  std::optional<GlobalBatch> ahead_;
  bool placed_ = false;  // by restore(): not to be begun again
  bool stopped_ = false;
  bool stop_is_on_its_way_ = false;  // the next batch brings it
  std::optional<int64_t> left_;      // steps, where a stop was on its way when the training was saved
  bool preempted_ = false;
};

}  // namespace cohort
