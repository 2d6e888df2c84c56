// Replicas that share memory: each one sums its own range of all replicas' gradients, updates the parameters there with
// the only copy of the slots, and writes the result to every copy. One pass over memory, the work of the update divided
// by the number of replicas, and the same bits on all of them. (The sharding of ZeRO, Rajbhandari et al., 2020, with
// stores in place of the gather.) With several workers the sums of each go over all of them before the update.
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/fail.h"
#include "base/flush_denormals.h"
#include "base/kernels/kernels.h"
#include "base/parallel.h"
#include "cohort/trace.h"
#include "strategy/worker_group.h"
#include "train/engine/overlapped_exchange.h"
#include "train/engine/update_engine.h"

namespace cohort {

namespace {

// Elements that are summed, updated and copied out before going on: all of it stays in the first-level cache.
constexpr int64_t kChunk = 2048;

// What a thread must have to do before another one is worth waking.
constexpr int64_t kChunksAThread = 16;

struct Chunk {  // a part of one parameter, inside one replica's range
  std::size_t parameter;
  int64_t begin;  // within the parameter
  int64_t size;
};

// What a replica brings to the meeting.
struct Offer {
  std::vector<const void*> gradients;  // one a parameter, null for zero
  int64_t step = 0;
};

class ShardedUpdate final : public UpdateEngine {
 public:
  ShardedUpdate(StrategyCore& core, FlatParameters& flat, const Optimizer& rule)
      : core_(core),
        flat_(flat),
        rule_(rule),
        replicas_(core.num_local_replicas()),
        slots_(make_slots(flat, rule.rule(), 0)) {
    offers_.assign(static_cast<std::size_t>(replicas_),
                   {.gradients = std::vector<const void*>(flat.parameters().size())});
    plan_chunks();
    const bool two_phases = wants_norm() || rule.rule().needs_norms() || core.workers() != nullptr;
    for (const FlatGroup& group : flat.groups()) {
      item_.push_back(static_cast<int64_t>(c10::elementSize(group.dtype)));
      if (two_phases) reduced_.push_back(zeros_for_sums(group));
      std::vector<char*> homes;
      for (const torch::Tensor& copy : group.copies) {
        auto* home = static_cast<char*>(copy.data_ptr());
        if (std::find(homes.begin(), homes.end(), home) == homes.end()) homes.push_back(home);
      }
      homes_.push_back(std::move(homes));
    }
    for (const auto& own : slots_) {
      std::vector<char*> homes;
      for (const torch::Tensor& slot : own) homes.push_back(static_cast<char*>(slot.data_ptr()));
      slot_homes_.push_back(std::move(homes));
    }
    norms_.resize(static_cast<std::size_t>(replicas_), 0.0);
    if (rule.rule().needs_norms()) {
      parameter_norms_.assign(static_cast<std::size_t>(replicas_), std::vector<SquaredNorms>(flat.parameters().size()));
    }
    for (const auto& own : chunks_) chunk_norms_.emplace_back(two_phases ? own.size() : 0);
    if (core.workers() != nullptr) plan_exchange();
  }

  void backward(Replica& replica, const torch::Tensor& loss) override {
    overlapped_ ? overlapped_->backward(replica.local_id(), loss) : loss.backward();
  }
  ExchangeTimeline timeline() const override { return overlapped_ ? overlapped_->timeline() : ExchangeTimeline{}; }

  bool step(Replica& replica, const std::vector<torch::Tensor>& gradients, bool reduced, StepContext context,
            double factor) override {
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
    context.grad_scale *= factor;
    bool updated = true;
    if (reduced_.empty()) {
      update_directly(me, reduced, context);
    } else {
      updated = update_in_phases(me, reduced, context);
    }
    if (replicas_ > 1) core_.rendezvous().depart(me);
    return updated;
  }

  const std::vector<std::vector<torch::Tensor>>& slots() const override { return slots_; }
  void spread_slots(int64_t /*iterations*/) override {}

 private:
  bool wants_norm() const { return rule_.gradient().global_clipnorm > 0.0 || rule_.gradient().loss_scale; }

  torch::Tensor zeros_for_sums(const FlatGroup& group) const {
    if (core_.workers() == nullptr) return torch::zeros({group.size}, group.dtype);
    return core_.workers()->gradients().shared_zeros(group.size, group.dtype);
  }

  void plan_exchange() {
    packs_ = gradient_packs(core_, flat_);
    std::size_t messages = 0;
    for (const auto& own : packs_) messages += own.size();
    // One message has nothing to overlap with: it leaves when backward ends.
    if (messages < 2 || !core_.workers()->overlaps()) return;
    overlapped_ =
        std::make_unique<OverlappedExchange>(core_.workers()->gradients(), flat_, replicas_, reduced_, packs_);
  }

  // Cuts the flat memory of all groups into one range a replica, and the ranges into chunks of single parameters.
  void plan_chunks() {
    chunks_.resize(static_cast<std::size_t>(replicas_));
    for (const FlatGroup& group : flat_.groups()) {
      constexpr int64_t kAlign = 16;
      const int64_t step = ((group.size + replicas_ - 1) / replicas_ + kAlign - 1) / kAlign * kAlign;
      for (const std::size_t p : group.members) {
        const FlatParameter& parameter = flat_.parameters()[p];
        for (int r = 0; r < replicas_; ++r) {
          const int64_t begin = std::max(parameter.offset, step * r) - parameter.offset;
          const int64_t end = std::min(parameter.offset + parameter.size, step * (r + 1)) - parameter.offset;
          for (int64_t at = begin; at < end; at += kChunk) {
            chunks_[static_cast<std::size_t>(r)].push_back({p, at, std::min(kChunk, end - at)});
          }
        }
      }
    }
  }

  // The gradients to be added up for one parameter, at an offset; in replica order.
  using Sources = c10::SmallVector<const void*, 16>;
  Sources sources_of(int me, bool reduced, const Chunk& chunk) const {
    Sources sources;
    const int64_t bytes = chunk.begin * item_[flat_.parameters()[chunk.parameter].group];
    for (int r = 0; r < replicas_; ++r) {
      if (reduced && r != me) continue;
      const void* gradient = offers_[static_cast<std::size_t>(r)].gradients[chunk.parameter];
      if (gradient != nullptr) sources.push_back(static_cast<const char*>(gradient) + bytes);
    }
    return sources;
  }

  // The sum of one chunk's gradients, in `scratch`, or where it is when there is only one.
  void* sum_chunk(int me, bool reduced, const Chunk& chunk, void* scratch, bool in_place) const {
    const Sources sources = sources_of(me, reduced, chunk);
    const torch::ScalarType dtype = dtype_of(chunk);
    if (sources.size() == 1 && in_place) return const_cast<void*>(sources[0]);
    if (sources.empty()) {
      std::memset(scratch, 0, static_cast<std::size_t>(chunk.size) * c10::elementSize(dtype));
    } else {
      kernels::sum_into(scratch, sources.data(), static_cast<int>(sources.size()), chunk.size, dtype);
    }
    return scratch;
  }

  torch::ScalarType dtype_of(const Chunk& chunk) const {
    return flat_.groups()[flat_.parameters()[chunk.parameter].group].dtype;
  }

  // visit(chunk, its number), on all threads that the replica's operations may use.
  template <typename Visit>
  void each_chunk(int me, const Visit& visit) const {
    const std::vector<Chunk>& own = chunks_[static_cast<std::size_t>(me)];
    parallel_for(static_cast<int64_t>(own.size()), kChunksAThread, [&](int64_t begin, int64_t end) {
      const FlushDenormals flush;
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) visit(own[i], i);
    });
  }

  // Everything in one pass.
  void update_directly(int me, bool reduced, const StepContext& context) const {
    each_chunk(me, [&](const Chunk& chunk, std::size_t) {
      alignas(64) char scratch[kChunk * sizeof(double)];
      update_chunk(chunk, sum_chunk(me, reduced, chunk, scratch, /*in_place=*/true), 1.0, context);
    });
  }

  void update_chunk(const Chunk& chunk, void* gradient, double trust_ratio, const StepContext& context) const {
    void* slots[kMaxSlots];
    Segment segment = segment_of(chunk, gradient, slots);
    segment.trust_ratio = trust_ratio;
    rule_.rule().update(segment, context);
    const FlatParameter& parameter = flat_.parameters()[chunk.parameter];
    const int64_t item = item_[parameter.group];
    const auto& homes = homes_[parameter.group];
    for (std::size_t i = 1; i < homes.size(); ++i) {
      std::memcpy(homes[i] + (parameter.offset + chunk.begin) * item, segment.parameter,
                  static_cast<std::size_t>(chunk.size * item));
    }
  }

  Segment segment_of(const Chunk& chunk, void* gradient, void** slots) const {
    const FlatParameter& parameter = flat_.parameters()[chunk.parameter];
    const int64_t bytes = (parameter.offset + chunk.begin) * item_[parameter.group];
    const auto& slot_homes = slot_homes_[parameter.group];
    for (std::size_t s = 0; s < slot_homes.size(); ++s) slots[s] = slot_homes[s] + bytes;
    return {.dtype = dtype_of(chunk),
            .parameter = homes_[parameter.group].front() + bytes,
            .gradient = gradient,
            .slots = slots,
            .size = chunk.size,
            .decay = parameter.decay};
  }

  char* reduced_at(const Chunk& chunk) const {
    const FlatParameter& parameter = flat_.parameters()[chunk.parameter];
    return static_cast<char*>(reduced_[parameter.group].data_ptr()) +
           (parameter.offset + chunk.begin) * item_[parameter.group];
  }

  // What needs a norm of all elements first: the sums are kept, and every phase ends with a meeting. Norms are added up
  // chunk by chunk, in an order that the number of threads does not change.
  bool update_in_phases(int me, bool reduced, StepContext context) {
    const bool wanted = wants_norm();
    auto& own = chunk_norms_[static_cast<std::size_t>(me)];
    const bool exchanged = core_.workers() != nullptr && !reduced;
    const auto note_norm = [&](const Chunk& chunk, std::size_t i) {
      own[i].direction = kernels::squared_norm(reduced_at(chunk), chunk.size, dtype_of(chunk));
    };
    if (overlapped_ == nullptr || reduced) {
      each_chunk(me, [&](const Chunk& chunk, std::size_t i) {
        sum_chunk(me, reduced, chunk, reduced_at(chunk), /*in_place=*/false);
        if (wanted && !exchanged) note_norm(chunk, i);
      });
    }
    if (exchanged) exchange(me);
    if (wanted && exchanged) each_chunk(me, note_norm);
    if (wanted) {
      double& norm = norms_[static_cast<std::size_t>(me)];
      norm = 0.0;
      for (const SquaredNorms& chunk : own) norm += chunk.direction;
      if (replicas_ > 1) core_.rendezvous().sync(me);
      const double total = std::accumulate(norms_.begin(), norms_.end(), 0.0);
      // The sum over all workers is the same for all, and so is what is done.
      if (rule_.gradient().loss_scale && !std::isfinite(total)) return false;
      context.grad_scale *=
          clip_factor(total * context.grad_scale * context.grad_scale, rule_.gradient().global_clipnorm);
    }
    if (rule_.rule().needs_norms()) prepare(me, context);
    each_chunk(me, [&](const Chunk& chunk, std::size_t) {
      update_chunk(chunk, reduced_at(chunk), trust_ratio(chunk.parameter), context);
    });
    return true;
  }

  // The sums of this worker's replicas become those of all workers'. What fails here must not keep the other replicas
  // waiting: they come to the second meeting, and all throw.
  void exchange(int me) {
    const TraceSpan span("communication", "exchange with the other workers");
    if (replicas_ > 1) core_.rendezvous().sync(me);
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
    if (replicas_ > 1) core_.rendezvous().sync(me);
    if (error) std::rethrow_exception(error);
    if (exchange_failed_) fail<Cancelled>("[optimizer] replica ", me, ": the exchange with the other workers failed");
  }

  void exchange_packs() {
    for (std::size_t g = 0; g < packs_.size(); ++g) {
      for (const Pack& pack : packs_[g]) {
        torch::Tensor message = reduced_[g].slice(0, pack.begin, pack.end);
        core_.workers()->gradients().all_reduce({&message, 1}, ReduceOp::kSum);
      }
    }
  }

  void prepare(int me, const StepContext& context) {
    auto& own = chunk_norms_[static_cast<std::size_t>(me)];
    each_chunk(me, [&](const Chunk& chunk, std::size_t i) {
      void* slots[kMaxSlots];
      own[i] = rule_.rule().prepare(segment_of(chunk, reduced_at(chunk), slots), context);
    });
    auto& sums = parameter_norms_[static_cast<std::size_t>(me)];
    std::fill(sums.begin(), sums.end(), SquaredNorms{});
    const std::vector<Chunk>& chunks = chunks_[static_cast<std::size_t>(me)];
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      sums[chunks[i].parameter].parameter += own[i].parameter;
      sums[chunks[i].parameter].direction += own[i].direction;
    }
    if (replicas_ > 1) core_.rendezvous().sync(me);
  }

  double trust_ratio(std::size_t p) const {
    if (parameter_norms_.empty() || !flat_.parameters()[p].decay) return 1.0;
    SquaredNorms total;
    for (const auto& own : parameter_norms_) {
      total.parameter += own[p].parameter;
      total.direction += own[p].direction;
    }
    return rule_.rule().trust_ratio(total);
  }

  static constexpr std::size_t kMaxSlots = 8;

  StrategyCore& core_;
  FlatParameters& flat_;
  Optimizer rule_;
  int replicas_;
  std::vector<std::vector<torch::Tensor>> slots_;
  std::vector<std::vector<char*>> slot_homes_;  // [group][slot]
  std::vector<int64_t> item_;                   // bytes an element, a group
  std::vector<std::vector<char*>> homes_;  // [group]: the distinct copies; the first is updated, the others copied to
  std::vector<torch::Tensor> reduced_;     // [group]: the summed gradients, where there are two phases
  std::vector<std::vector<Pack>> packs_;   // [group]: their messages to other workers
  std::unique_ptr<OverlappedExchange> overlapped_;  // null: after backward
  bool exchange_failed_ = false;
  std::vector<std::vector<Chunk>> chunks_;                  // [replica]
  std::vector<Offer> offers_;                               // [replica]
  std::vector<double> norms_;                               // [replica]
  std::vector<std::vector<SquaredNorms>> chunk_norms_;      // [replica][chunk], where there are two phases
  std::vector<std::vector<SquaredNorms>> parameter_norms_;  // [replica][parameter]
};

}  // namespace

std::unique_ptr<UpdateEngine> make_sharded_update(StrategyCore& core, FlatParameters& flat, const Optimizer& rule) {
  return std::make_unique<ShardedUpdate>(core, flat, rule);
}

}  // namespace cohort
