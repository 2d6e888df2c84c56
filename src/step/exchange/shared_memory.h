// SharedMemoryExchange: replicas that reach each other's memory. Each one sums its own range of all replicas' gradients
// where backward left them and updates the parameters there for all (update/chunks.h).
#pragma once

#include <c10/util/SmallVector.h>
#include <torch/types.h>

#include <vector>

#include "collective/gradient_wire.h"
#include "step/exchange/exchange.h"
#include "step/update/chunks.h"

namespace cohort {

class SharedMemoryExchange : public Exchange {
 public:
  // The exchange of one process. Without norms the sums are not kept: adding up and updating are one pass over memory.
  explicit SharedMemoryExchange(const ExchangeParts& parts);

  Verdict step(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced, StepContext context) override;
  Slots slots() const override { return update_.slots(); }
  StateBytes state_bytes() const override;

 protected:
  // Takes the gradients of a replica before all meet, and returns tensors that have to live until they part.
  virtual std::vector<torch::Tensor> take(int me, const std::vector<torch::Tensor>& gradients, bool reduced);
  // Makes the sums that the update takes, and keeps the norms of this replica's range.
  virtual void make_sums(int me, bool reduced);

  // From now on the sums are kept, in memory that the other workers may see.
  void keep_sums();
  // Adds up this replica's range of the local replicas' gradients; `then` is called with each chunk that has its sum.
  template <typename Then>
  void add_up_range(int me, bool reduced, const Then& then);
  void keep_norm(int me, const Chunk& chunk, std::size_t index);
  bool wants_norm() const { return wants_norm_; }
  // Returns the number of the update that is being made, from 1.
  int64_t update_number() const { return offers_.front().step; }

  StrategyCore& core_;
  Optimizer rule_;
  int replicas_;
  GradientWire wire_;
  ChunkUpdate update_;
  std::vector<torch::Tensor> sums_;  // [group]; none where all happens in one pass

 private:
  // The things that a replica brings to the meeting.
  struct Offer {
    std::vector<const void*> gradients;  // one a parameter, null for zero
    int64_t step = 0;
  };
  // The gradients to be added up for one chunk.
  using Sources = c10::SmallVector<const void*, 16>;

  void update_in_one_pass(int me, bool reduced, const StepContext& context) const;
  bool update_in_phases(int me, bool reduced, StepContext context);
  Sources sources_of(int me, bool reduced, const Chunk& chunk) const;
  void add_up(const Sources& sources, const Chunk& chunk, void* sum) const;

  bool wants_norm_;
  std::vector<Offer> offers_;  // [replica]
};

template <typename Then>
void SharedMemoryExchange::add_up_range(int me, bool reduced, const Then& then) {
  update_.each_chunk(me, [&](const Chunk& chunk, std::size_t index) {
    add_up(sources_of(me, reduced, chunk), chunk, update_.place_in(sums_, chunk));
    then(chunk, index);
  });
}

}  // namespace cohort
