// CommunicatorExchange: the exchange by messages (communicator.cpp), with what steps need of it that are captured as
// graphs of devices.
#pragma once

#include <torch/types.h>

#include <any>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collective/gradient_wire.h"
#include "step/exchange/comm_hook.h"
#include "step/exchange/device_buckets.h"
#include "step/exchange/exchange.h"
#include "step/flat_gradients.h"
#include "step/update/cut_lines.h"
#include "step/update/tensors.h"
#include "strategy/core.h"

namespace cohort {

// The capture of the steps of an exchange as graphs of devices.
struct ExchangeInGraphs {
  // Takes notice that a replica is about to exchange as it is: graphs of other ones may be about to exchange by
  // themselves, or for another optimizer. A meeting of the replicas, if it is one. Null: there are no such graphs.
  std::function<void(int local_id)> come;
  std::any own;  // the wing's
};

class CommunicatorExchange final : public Exchange {
 public:
  explicit CommunicatorExchange(const ExchangeParts& parts);

  void backward(Replica& replica, const torch::Tensor& loss) override;
  Verdict step(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced, StepContext context) override;

  std::vector<torch::Tensor> own_state() const override;
  void load_own_state(std::span<const torch::Tensor> state) override;
  void forget_own_state() override;

  Slots slots() const override { return updates_.front().slots(); }
  Slots slots_of(int local_id) const override { return update(local_id).slots(); }
  void spread_slots(int64_t iterations) override;

  // The parts of a captured step.
  StrategyCore& core() const { return core_; }
  // Returns whether gradients become messages.
  bool sends() const { return sends_; }
  // Returns whether a step takes other messages than the sums: norms of parts, and of stages, take some in the middle
  // of the update, and the approximation goes by its step.
  bool takes_other_messages() const;
  FlatGradients& gradients() { return gradients_; }
  TensorUpdate& update(int local_id) { return updates_[static_cast<std::size_t>(local_id)]; }
  const TensorUpdate& update(int local_id) const { return updates_[static_cast<std::size_t>(local_id)]; }
  // Returns the buckets that leave during backward; null: gradients leave after it.
  DeviceBuckets* buckets() const { return buckets_.get(); }
  // Adds up what is in the flat gradients of all replicas.
  void sum_packed(Replica& replica);
  const ExchangeInGraphs& in_graphs() const { return in_graphs_; }

 private:
  void begin_in_backward();
  void come(const Replica& replica) {
    if (in_graphs_.come) in_graphs_.come(replica.local_id());
  }
  Verdict step_by_buckets(int me, const std::vector<torch::Tensor>& gradients, const StepContext& context);
  void join_parts();
  void all_reduce(Replica& replica, int64_t update);

  StrategyCore& core_;
  FlatGradients gradients_;
  std::vector<std::vector<Pack>> packs_;  // [group]
  GradientWire wire_;
  bool sends_;
  std::vector<std::unique_ptr<CommHook>> hooks_;  // [replica]; none where the messages have the gradients themselves
  std::vector<TensorUpdate> updates_;             // [replica]
  std::unique_ptr<DeviceBuckets> buckets_;
  std::optional<CutLines> lines_;  // nothing where no parameter is cut
  ExchangeInGraphs in_graphs_;     // has the parts above
};

// Makes what captures the steps of an exchange whose devices can be captured.
struct ExchangeInGraphsMaker {
  ExchangeInGraphs (*make)(CommunicatorExchange& exchange);
};

}  // namespace cohort
