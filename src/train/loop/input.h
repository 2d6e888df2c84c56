// TrainingInput: the batches of a training's steps, and what its workers agree on between two steps.
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
  // Returns true if a callback of this worker has stopped the training. Empty: nothing stops it.
  std::function<bool()> stop = {};
};

// Used by one thread. All workers make the same calls.
class TrainingInput {
 public:
  TrainingInput(const Strategy& strategy, DistributedDataset data, TrainingInputOptions options = {});

  const DistributedDataset& data() const { return data_; }
  // Returns true once there is an iterator.
  bool begun() const { return iterator_.has_value(); }

  // Prepares the steps of an epoch. An iterator that goes on from the epoch before, or from restore(), is kept.
  void begin_epoch(int64_t epoch);
  // Returns the next step's batch without taking it; null at the end of the data, and where the training ends.
  const GlobalBatch* peek();
  std::optional<GlobalBatch> next();
  // Ends an epoch: a stop that any worker wants by now counts from here on. Collective.
  void end_epoch() { stopped_ = any_worker("end of an epoch", wants_stop()); }

  // Returns true if the training ends here. A callback may have stopped only one of several workers, so they agree on
  // it: at the end of an epoch, and within it with the next batch, a step later.
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
  // Returns what becomes of a stop that is wanted between two steps or, with epoch_done, after an epoch. Collective.
  Ending ending(bool epoch_done) const;
  // Goes to the position. Where its input is empty, or another one's on any worker, the epoch is begun anew and the
  // result is false. Collective.
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
  bool placed_ = false;  // restore() has placed the iterator, which the next epoch does not begin again
  bool stopped_ = false;
  bool stop_is_on_its_way_ = false;  // the next batch brings it
  std::optional<int64_t> left_;      // steps left, where a stop was on its way when the training was saved
  bool preempted_ = false;
};

}  // namespace cohort
