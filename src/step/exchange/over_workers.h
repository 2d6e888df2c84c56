// OverWorkers: replicas that share memory, in several processes: the sums of this process (shared_memory.h) are kept
// and go on over all workers, in packs. They leave after backward, or where the workers overlap the two and there is
// more than one pack, while backward still makes the gradients of the layers before (overlapped.h).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "step/exchange/comm_hook.h"
#include "step/exchange/overlapped.h"
#include "step/exchange/shared_memory.h"

namespace cohort {

class OverWorkers : public SharedMemoryExchange {
 public:
  // Without `overlaps` the sums leave after backward.
  OverWorkers(const ExchangeParts& parts, bool overlaps);

  void backward(Replica& replica, const torch::Tensor& loss) override;
  std::vector<torch::Tensor> own_state() const override;
  void load_own_state(std::span<const torch::Tensor> state) override;
  void forget_own_state() override;
  ExchangeTimeline timeline() const override;

 protected:
  std::vector<torch::Tensor> take(int me, const std::vector<torch::Tensor>& gradients, bool reduced) override;
  void make_sums(int me, bool reduced) override;

  // Has the first replica speak with the other workers while its own wait. After a failure all meet and throw.
  void with_workers(int me, const std::function<void()>& speak);
  void make_own_sums(int me, bool reduced) { SharedMemoryExchange::make_sums(me, reduced); }
  // Makes the own sums those of all workers.
  void exchange_packs();

 private:
  std::vector<std::vector<Pack>> packs_;            // [group]: the messages to other workers
  std::unique_ptr<OverlappedExchange> overlapped_;  // null: they leave after backward
  std::unique_ptr<CommHook> hook_;                  // null: the messages have the gradients themselves
  bool failed_ = false;                             // the exchange of this step; written between two meetings
};

}  // namespace cohort
