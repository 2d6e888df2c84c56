// Replicas that share memory: each one sums its own range of all replicas' gradients where backward left them and
// updates the parameters there for all (update/chunks.h). Without norms and other workers both happen in one pass over
// memory; otherwise the sums are kept, those of several workers go over all of them, and the update follows.
#include <c10/util/SmallVector.h>

#include <cstring>

#include "base/fail.h"
#include "base/kernels/kernels.h"
#include "cohort/trace.h"
#include "step/exchange/exchange.h"
#include "step/exchange/overlapped.h"
#include "step/scaling.h"
#include "step/update/chunks.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

class SharedMemoryExchange final : public Exchange {
 public:
  SharedMemoryExchange(StrategyCore& core, FlatParameters& flat, const Optimizer& rule);

  void backward(Replica& replica, const torch::Tensor& loss) override;
  ExchangeTimeline timeline() const override;
  bool step(Replica& replica, const std::vector<torch::Tensor>& gradients, bool reduced, StepContext context) override;
  const std::vector<std::vector<torch::Tensor>>& slots() const override { return update_.slots(); }
  void spread_slots(int64_t /*iterations*/) override {}

 private:
  // What a replica brings to the meeting.
  struct Offer {
    std::vector<const void*> gradients;  // one a parameter, null for zero
    int64_t step = 0;
  };
  // The gradients to be added up for one chunk.
  using Sources = c10::SmallVector<const void*, 16>;

  void update_in_one_pass(int me, bool reduced, const StepContext& context) const;
  bool update_in_phases(int me, bool reduced, StepContext context);
  void meet(int me);
  Sources sources_of(int me, bool reduced, const Chunk& chunk) const;
  void add_up(const Sources& sources, const Chunk& chunk, void* sum) const;
  void exchange_with_workers(int me);
  void exchange_packs();

  StrategyCore& core_;
  FlatParameters& flat_;
  Optimizer rule_;
  int replicas_;
  ChunkUpdate update_;
  std::vector<Offer> offers_;                       // [replica]
  std::vector<torch::Tensor> sums_;                 // [group]; none where all happens in one pass
  std::vector<std::vector<Pack>> packs_;            // [group]: the messages to other workers
  std::unique_ptr<OverlappedExchange> overlapped_;  // null: they leave after backward
  bool exchange_failed_ = false;
};

SharedMemoryExchange::SharedMemoryExchange(StrategyCore& core, FlatParameters& flat, const Optimizer& rule)
    : core_(core),
      flat_(flat),
      rule_(rule),
      replicas_(core.num_local_replicas()),
      update_(flat, rule, replicas_),
      offers_(static_cast<std::size_t>(replicas_), {.gradients = std::vector<const void*>(flat.parameters().size())}) {
  const WorkerGroup& workers = core.workers();
  if (!needs_norm(rule.gradient()) && !rule.rule().needs_norms() && workers.size() == 1) return;
  for (const FlatGroup& group : flat.groups()) {
    sums_.push_back(workers.gradients().shared_zeros(group.size, group.dtype));
  }
  packs_ = gradient_packs(core, flat);
  std::size_t messages = 0;
  for (const auto& own : packs_) messages += own.size();
  // One message has nothing to overlap with: it leaves when backward ends.
  if (messages < 2 || !workers.overlaps()) return;
  overlapped_ = std::make_unique<OverlappedExchange>(workers.gradients(), flat, replicas_, sums_, packs_);
}

void SharedMemoryExchange::backward(Replica& replica, const torch::Tensor& loss) {
  overlapped_ ? overlapped_->backward(replica.local_id(), loss) : loss.backward();
}

ExchangeTimeline SharedMemoryExchange::timeline() const {
  return overlapped_ ? overlapped_->timeline() : ExchangeTimeline{};
}

bool SharedMemoryExchange::step(Replica& replica, const std::vector<torch::Tensor>& gradients, bool reduced,
                                StepContext context) {
  const int me = replica.local_id();
  const bool overlapped = overlapped_ != nullptr && !reduced;
  // Before the replicas meet: what fails between meetings would leave the others waiting.
  if (overlapped) overlapped_->complete(me, gradients);
  std::vector<torch::Tensor> dense;
  Offer& offer = offers_[static_cast<std::size_t>(me)];
  for (std::size_t p = 0; p < gradients.size() && !overlapped; ++p) {
    dense.push_back(flat_.laid_out(gradients[p], p));
    offer.gradients[p] = dense[p].defined() ? dense[p].data_ptr() : nullptr;
  }
  offer.step = context.step;
  if (replicas_ > 1) {
    const TraceSpan span("communication", "meet the other replicas");
    core_.rendezvous().arrive(me, {.what = reduced ? "apply_gradients (reduced)" : "minimize"}, nullptr);
  }
  const TraceSpan span("compute", "all-reduce and update");
  // After a failed step the replicas' counts may differ: the first one's holds.
  context.step = offers_.front().step;
  bool updated = true;
  if (sums_.empty()) {
    update_in_one_pass(me, reduced, context);
  } else {
    updated = update_in_phases(me, reduced, context);
  }
  if (replicas_ > 1) core_.rendezvous().depart(me);
  return updated;
}

void SharedMemoryExchange::update_in_one_pass(int me, bool reduced, const StepContext& context) const {
  update_.each_chunk(me, [&](const Chunk& chunk, std::size_t) {
    alignas(64) char scratch[kUpdateChunk * sizeof(double)];
    const Sources sources = sources_of(me, reduced, chunk);
    // A single gradient is its own sum. The rule may overwrite it: nobody reads it again.
    void* sum = sources.size() == 1 ? const_cast<void*>(sources[0]) : scratch;
    if (sources.size() != 1) add_up(sources, chunk, sum);
    update_.update(chunk, sum, context);
  });
}

// Every phase ends with a meeting of the replicas.
bool SharedMemoryExchange::update_in_phases(int me, bool reduced, StepContext context) {
  const bool wants_norm = needs_norm(rule_.gradient());
  const bool exchanged = core_.num_workers() > 1 && !reduced;
  const auto keep_norm = [&](const Chunk& chunk, std::size_t i) {
    update_.keep_norm(me, chunk, i, update_.place_in(sums_, chunk));
  };
  if (overlapped_ == nullptr || reduced) {
    update_.each_chunk(me, [&](const Chunk& chunk, std::size_t i) {
      add_up(sources_of(me, reduced, chunk), chunk, update_.place_in(sums_, chunk));
      if (wants_norm && !exchanged) keep_norm(chunk, i);
    });
  }
  if (exchanged) exchange_with_workers(me);
  if (wants_norm && exchanged) update_.each_chunk(me, keep_norm);
  if (wants_norm) {
    update_.add_norms(me);
    meet(me);
    // The sum over all workers is the same for all, and so is what is done.
    if (!scale_by_norm(update_.squared_norm(), rule_.gradient(), context)) return false;
  }
  if (rule_.rule().needs_norms()) {
    update_.prepare(me, sums_, context);
    meet(me);
  }
  update_.update_range(me, sums_, context);
  return true;
}

void SharedMemoryExchange::meet(int me) {
  if (replicas_ > 1) core_.rendezvous().sync(me);
}

// Those of all replicas, in their order.
SharedMemoryExchange::Sources SharedMemoryExchange::sources_of(int me, bool reduced, const Chunk& chunk) const {
  Sources sources;
  for (int r = 0; r < replicas_; ++r) {
    if (reduced && r != me) continue;
    const void* gradient = offers_[static_cast<std::size_t>(r)].gradients[chunk.parameter];
    if (gradient == nullptr) continue;
    sources.push_back(static_cast<const char*>(gradient) + update_.offset_in_parameter(chunk));
  }
  return sources;
}

void SharedMemoryExchange::add_up(const Sources& sources, const Chunk& chunk, void* sum) const {
  const torch::ScalarType dtype = update_.dtype(chunk);
  if (sources.empty()) {
    std::memset(sum, 0, static_cast<std::size_t>(chunk.size) * c10::elementSize(dtype));
  } else {
    kernels::sum_into(sum, sources.data(), static_cast<int>(sources.size()), chunk.size, dtype);
  }
}

// The sums of this worker's replicas become those of all workers'. What fails here must not keep the other replicas
// waiting: they come to the second meeting, and all throw.
void SharedMemoryExchange::exchange_with_workers(int me) {
  const TraceSpan span("communication", "exchange with the other workers");
  meet(me);
  std::exception_ptr error;
  if (me == 0) {
    exchange_failed_ = false;
    try {
      overlapped_ ? overlapped_->wait() : exchange_packs();
    } catch (...) {
      error = std::current_exception();
      exchange_failed_ = true;
    }
  }
  meet(me);
  if (error) std::rethrow_exception(error);
  if (exchange_failed_) fail<Cancelled>("[optimizer] replica ", me, ": the exchange with the other workers failed");
}

void SharedMemoryExchange::exchange_packs() {
  for (std::size_t g = 0; g < packs_.size(); ++g) {
    for (const Pack& pack : packs_[g]) {
      torch::Tensor message = sums_[g].slice(0, pack.begin, pack.end);
      core_.workers().gradients().all_reduce({&message, 1}, ReduceOp::kSum);
    }
  }
}

}  // namespace

std::unique_ptr<Exchange> make_shared_memory_exchange(StrategyCore& core, FlatParameters& flat, const Optimizer& rule) {
  return std::make_unique<SharedMemoryExchange>(core, flat, rule);
}

}  // namespace cohort
