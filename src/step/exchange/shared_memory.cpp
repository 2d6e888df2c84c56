// Without norms a replica's range is added up and updated in one pass over memory. Otherwise the sums are kept: all are
// made, then the norms, then the update follows, and the replicas wait for each other between these phases. They hand
// each other pointers into their CPU tensors.
#include "step/exchange/shared_memory.h"

#include <cstring>

#include "cohort/trace.h"
#include "ops/kernels/kernels.h"
#include "step/scaling.h"
#include "strategy/worker_group.h"

namespace cohort {

SharedMemoryExchange::SharedMemoryExchange(const ExchangeParts& parts)
    : Exchange(parts.flat),
      core_(parts.core),
      rule_(parts.rule),
      replicas_(core_.num_local_replicas()),
      wire_(core_.plan().exchange.gradient_compression),
      update_(flat_, rule_, replicas_),
      wants_norm_(needs_norm(rule_.gradient())),
      offers_(static_cast<std::size_t>(replicas_), {.gradients = std::vector<const void*>(flat_.parameters().size())}) {
  if (wants_norm_ || rule_.rule().one_by_one()) keep_sums();
}

void SharedMemoryExchange::keep_sums() {
  if (!sums_.empty()) return;
  for (const FlatGroup& group : flat_.groups()) {
    sums_.push_back(wire_.sums(core_.workers().gradients(), group.size, group.dtype));
  }
}

Verdict SharedMemoryExchange::step(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced,
                                   StepContext context) {
  const int me = replica.local_id();
  // This is done before the replicas meet: a failure between meetings would leave the others waiting.
  const std::vector<torch::Tensor> alive = take(me, gradients, reduced);
  offers_[static_cast<std::size_t>(me)].step = context.step;
  core_.launch().arrive(me, reduced ? "apply_gradients (reduced)" : "minimize");
  const TraceSpan span("compute", "all-reduce and update");
  // After a failed step the replicas' counts may differ: the first one's holds.
  context.step = offers_.front().step;
  bool updated = true;
  if (sums_.empty()) {
    update_in_one_pass(me, reduced, context);
  } else {
    updated = update_in_phases(me, reduced, context);
  }
  core_.launch().depart(me);
  return updated;
}

std::vector<torch::Tensor> SharedMemoryExchange::take(int me, const std::vector<torch::Tensor>& gradients,
                                                      bool /*reduced*/) {
  std::vector<torch::Tensor> dense;
  Offer& offer = offers_[static_cast<std::size_t>(me)];
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    dense.push_back(flat_.laid_out(gradients[p], p));
    offer.gradients[p] = dense[p].defined() ? dense[p].data_ptr() : nullptr;
  }
  return dense;
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
  make_sums(me, reduced);
  if (wants_norm_) {
    update_.add_norms(me);
    core_.launch().sync(me);
    // The sum over all workers is the same for all, and so is what is done.
    if (!scale_by_norm(update_.squared_norm(), rule_.gradient(), context)) return false;
  }
  if (rule_.rule().needs_norms()) {
    update_.prepare(me, sums_, context);
    core_.launch().sync(me);
  }
  update_.update_range(me, sums_, context);
  return true;
}

void SharedMemoryExchange::make_sums(int me, bool reduced) {
  add_up_range(me, reduced, [&](const Chunk& chunk, std::size_t index) {
    if (wants_norm_) keep_norm(me, chunk, index);
  });
}

void SharedMemoryExchange::keep_norm(int me, const Chunk& chunk, std::size_t index) {
  update_.keep_norm(me, chunk, index, update_.place_in(sums_, chunk));
}

// Returns the gradients of all replicas, in their order.
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

// The replicas of a process have the slots once, each those of its range.
StateBytes SharedMemoryExchange::state_bytes() const {
  StateBytes bytes = Exchange::state_bytes();
  bytes.slots = (bytes.slots + replicas_ - 1) / replicas_;
  return bytes;
}

std::unique_ptr<Exchange> make_shared_memory_exchange(const ExchangeParts& parts) {
  return std::make_unique<SharedMemoryExchange>(parts);
}

}  // namespace cohort
