// ScatteredGradients: the gradients of replicas that share the states of an optimizer. The sum of each message goes to
// its owners alone, slice by slice. In stage 2 the messages leave as backward completes them, and what has left is
// freed.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/communicator.h"
#include "cohort/optimizer.h"
#include "collective/gradient_wire.h"
#include "device/backend.h"
#include "step/flat_parameters.h"
#include "strategy/core.h"
#include "wings/sharding/step/shard_plan.h"

namespace cohort {

class ScatteredGradients {
 public:
  // The owners of the plan are the replicas along the axis of the strategy's ShardingOptions. With `overlaps`, which is
  // for one local replica, messages travel while backward goes on, in groups of their own; making these is a collective
  // of all replicas.
  ScatteredGradients(StrategyCore& core, const FlatParameters& flat, const ShardPlan& plan, bool overlaps);
  ScatteredGradients(const ScatteredGradients&) = delete;
  ScatteredGradients& operator=(const ScatteredGradients&) = delete;
  ~ScatteredGradients();

  // Begins a step of a local replica in which gradients come by take() before sums() is called.
  void begin(int local_id);
  // Has the next step of each local replica begin anew, after one that failed.
  void drop_step() {
    for (ReplicaStep& step : steps_) step.begun = false;
  }
  // Takes the gradient of a parameter, undefined for zero, and sends the messages that are complete now, in the order
  // of the units. FailedPrecondition: it came before.
  void take(int local_id, std::size_t parameter, torch::Tensor gradient);
  // A collective of all replicas in sync. Takes those gradients of a local replica, one a parameter, that have not come
  // by take(), undefined for zero, and returns the sums of its slices, one a unit: on its device, or in the host's
  // memory where it offloads its states. Gradients are given up message by message.
  std::vector<torch::Tensor> sums(int local_id, std::vector<torch::Tensor> gradients);
  // Returns the slices of gradients that are sums already.
  std::vector<torch::Tensor> own(int local_id, const std::vector<torch::Tensor>& gradients) const;

  // Returns the most bytes of gradients, messages and sums that a local replica had at once in its last step.
  int64_t peak_bytes(int local_id) const { return steps_[static_cast<std::size_t>(local_id)].peak; }
  // Returns when the messages of replica 0's last step left, if they did so during backward.
  ExchangeTimeline timeline() const;
  // Notes when replica 0's backward ended.
  void end_backward();

 private:
  using Clock = std::chrono::steady_clock;

  // A message that has left.
  struct Sent {
    std::size_t unit = 0;
    std::function<torch::Tensor()> sum;  // waits for the sum of this replica's slice
    int64_t bytes = 0;
  };
  // The step of one replica.
  struct ReplicaStep {
    bool begun = false;
    std::vector<torch::Tensor> gradients;  // [parameter]: those that came and have not been given up
    std::vector<char> came;                // [parameter]
    std::vector<int64_t> missing;          // [unit]: parameters whose gradients have not come
    std::size_t next = 0;                  // the unit that leaves next
    std::optional<Sent> sent;              // the message under way
    std::vector<torch::Tensor> slices;     // [unit]: the sums of those that have left
    int64_t peak = 0;
  };

  ReplicaStep& step_of(int local_id) { return steps_[static_cast<std::size_t>(local_id)]; }
  Communicator& line(const std::string& axis, int local_id) const;
  int owner_of(int local_id) const;
  torch::ScalarType dtype_of(std::size_t unit) const;
  // Returns a unit's gradients in a flat tensor of this size and dtype, with zeros where there are none.
  torch::Tensor pack(std::size_t unit, int local_id, const std::vector<torch::Tensor>& gradients, int64_t size,
                     torch::ScalarType dtype) const;
  // Drops the gradients that no unit after this one has elements of.
  void give_up(std::size_t unit, std::vector<torch::Tensor>& gradients) const;
  void put(ReplicaStep& step, std::size_t parameter, torch::Tensor gradient) const;
  void send_complete(int local_id);
  Sent send(std::size_t unit, int local_id, const torch::Tensor& message);
  DeviceStream* stream(int local_id) const { return to_host_[static_cast<std::size_t>(local_id)].get(); }
  void finish(int local_id, const Sent& sent);
  torch::Tensor kept(int local_id, const torch::Tensor& sum) const;
  void wait_for_host(int local_id) const;
  int64_t message_bytes(std::size_t unit) const;
  void note_peak(int local_id, std::size_t unit);

  StrategyCore& core_;
  const FlatParameters& flat_;
  const ShardPlan& plan_;
  GradientWire wire_;
  std::vector<std::vector<std::size_t>> units_of_;                 // [parameter]
  std::map<std::string, std::unique_ptr<Communicator>> own_ends_;  // by axis; none where messages do not travel alone
  std::vector<ReplicaStep> steps_;                                 // [replica]
  std::vector<std::unique_ptr<DeviceStream>> to_host_;             // [replica]; null where sums stay on the device
  Clock::time_point begin_, end_;                                  // of replica 0's backward
  ExchangeTimeline timeline_;
};

}  // namespace cohort
