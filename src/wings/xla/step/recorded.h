// RecordedExchange: the exchange whose sums and update are operations of the recorded step (recorded.cpp).
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "optimizer/update_rule.h"
#include "step/exchange/exchange.h"
#include "step/update/slots.h"
#include "wings/xla/record/function_recording.h"

namespace cohort {

class RecordedExchange final : public Exchange {
 public:
  RecordedExchange(StrategyCore& core, FlatParameters& flat, const Optimizer& rule);

  Verdict step(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced, StepContext context) override;

  // For a step that is a part of a function which is recorded: records the update of a replica again, on tensors that
  // stand for its own, with other numbers; parameters whose updates have the same numbers are one.
  record::HostPart::Again update_again(int id, StepContext context);

  // With a loss scale: returns whether the sums of a replica's last step within a function were finite. Waits for it.
  bool was_finite(int id) const;

  Slots slots() const override { return slots_.front(); }
  void spread_slots(int64_t /*iterations*/) override;

 private:
  static void settle(const std::vector<torch::Tensor>& gradients);
  std::vector<torch::Tensor> make_slots(const torch::Tensor& parameter) const;

  // Returns the sums over the replicas, each a tensor of its own.
  std::vector<torch::Tensor> sum(int id, const std::vector<torch::Tensor>& gradients, bool reduced) const;

  std::vector<torch::Tensor> copies(int id) const;

  // Returns the sum in the dtype of the update.
  static torch::Tensor widened(const torch::Tensor& sum) { return sum.to(slot_dtype(sum.scalar_type())); }

  static torch::Tensor norm_of(const std::vector<torch::Tensor>& sums);

  // Clips the sums by the norm of all of them. Returns the context.
  const StepContext& clipped(std::vector<torch::Tensor>& sums, const StepContext& context) const;

  // Follows scaling.h. Returns false when the step is to be left out.
  bool scale(int id, std::vector<torch::Tensor>& sums, const StepContext& context) const;

  void update_in_function(int id, std::vector<torch::Tensor>& sums, const StepContext& context);

  void update(const std::vector<torch::Tensor>& parameters, std::vector<std::vector<torch::Tensor>>& slots,
              std::vector<torch::Tensor>& sums, const StepContext& context) const;

  void update_one(std::size_t p, const torch::Tensor& parameter, std::vector<torch::Tensor>& slots, torch::Tensor& sum,
                  const StepContext& context) const;

  // The numbers of the updates of each kind of parameters.
  using KnownNumbers = std::vector<std::vector<std::shared_ptr<record::Node>>>;

  // Parameters whose updates are the same operations with the same numbers: those of one kind.
  struct Alike {
    std::vector<std::size_t> kind;   // of each parameter
    std::vector<std::size_t> first;  // the first parameter of each kind
  };
  Alike find_alike() const;

  StrategyCore& core_;
  Optimizer rule_;
  std::vector<std::vector<std::vector<torch::Tensor>>> slots_;  // [replica][parameter][slot]
  // The norm of the sums of each replica's last step within a function, with a loss scale.
  std::vector<torch::Tensor> norms_;
  Alike alike_ = find_alike();
};

// Makes the exchange, which is begun for all replicas together.
std::unique_ptr<Exchange> make_recorded_exchange(const ExchangeParts& parts);

}  // namespace cohort
