// TrainingInput: the batches of the steps of a training, and what its workers agree on between two steps.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cohort/distributed_dataset.h"
#include "train/loop/position.h"

namespace cohort {

struct TrainingInputOptions {
  // Makes every epoch a pass over the data of its own; otherwise one iterator goes through all epochs.
  bool pass_an_epoch = false;
  // Returns true if a callback of this worker has stopped the training. If it is empty nothing stops it.
  std::function<bool()> stop = {};
};

// The input of a training. It is used by one thread; all workers make the same calls.
class TrainingInput {
 public:
  TrainingInput(const Strategy& strategy, DistributedDataset data, TrainingInputOptions options = {});

  const DistributedDataset& data() const { return data_; }
  // Returns true once there is an iterator.
  bool begun() const { return iterator_.has_value(); }

  // Prepares the steps of an epoch. An iterator that goes on from the epoch before, or from restore(), is kept.
  void begin_epoch(int64_t epoch);
  // Returns the batch of the next step without taking it; null at the end of the data and when the training has ended.
  const GlobalBatch* peek();
  // Takes the batch of the next step.
  std::optional<GlobalBatch> next();
  // Ends an epoch. A stop that any worker has asked for by now counts from here on. Collective.
  void end_epoch() { stopped_ = any_worker("end of an epoch", wants_stop()); }

  // Returns true if the training ends here. A callback may have stopped only one of several workers, so they agree on a
  // stop at the end of an epoch, and within an epoch with the next batch, a step later.
  bool stopped() const { return stopped_ || stops_alone(); }

  // Sets the function that tells this worker to leave the training; it is asked before every step.
  void listen_to(std::function<bool()> told) { told_ = std::move(told); }
  bool listens() const { return told_ != nullptr; }
  bool told() const { return told_ && told_(); }
  // Returns true if any worker was told so. All leave after the step whose batch came last.
  bool preempted() const { return preempted_; }

  // Returns this worker's position between two steps; empty before the first step, and where the next epoch begins
  // anew.
  std::string save(bool epoch_done = false);
  // Returns when a stop takes effect that was asked for between two steps or, with epoch_done, after an epoch.
  // Collective.
  Ending ending(bool epoch_done) const;
  // Goes to the position and returns true. If on any worker the position has no input, or that of another dataset, all
  // begin the epoch anew and return false. Collective.
  bool restore(const TrainingPosition& position);

 private:
  // Returns whether this worker wants to stop and no other one has to hear of it.
  bool stops_alone() const;
  bool wants_stop() const { return options_.stop && options_.stop(); }
  bool any_worker(const std::string& what, bool mine) const;
  void restart(int64_t epoch);

  Strategy strategy_;
  DistributedDataset data_;
  TrainingInputOptions options_;
  std::function<bool()> told_;
  std::optional<DistributedIterator> iterator_;
  std::optional<GlobalBatch> ahead_;
  bool placed_ = false;  // restore() has placed the iterator, so the next epoch does not begin a new one
  bool stopped_ = false;
  bool stop_is_on_its_way_ = false;  // a stop arrives with the next batch
  std::optional<int64_t> left_;      // steps left, if a stop was on its way when the training was saved
  bool preempted_ = false;
};

}  // namespace cohort
