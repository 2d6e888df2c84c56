// Replicas that share memory: each one sums its own range of all replicas' gradients, updates the parameters there with
// the only copy of the slots, and writes the result to every copy. One pass over memory, the work of the update divided
// by the number of replicas, and the same bits on all of them. (The sharding of ZeRO, Rajbhandari et al., 2020, with
// stores in place of the gather.)
#include <algorithm>
#include <cstring>

#include "base/fail.h"
#include "base/flush_denormals.h"
#include "base/kernels/kernels.h"
#include "train/engine/update_engine.h"

namespace cohort {

namespace {

// Elements that are summed, updated and copied out before going on: all of it stays in the first-level cache.
constexpr int64_t kChunk = 2048;

struct Piece {  // a part of one parameter, inside one replica's range
  std::size_t parameter;
  int64_t begin;  // within the parameter
  int64_t end;
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
    plan_pieces();
    const bool two_phases = rule.gradient().global_clipnorm > 0.0 || rule.rule().needs_norms();
    for (const FlatGroup& group : flat.groups()) {
      item_.push_back(static_cast<int64_t>(c10::elementSize(group.dtype)));
      if (two_phases) reduced_.push_back(torch::zeros({group.size}, group.dtype));
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
  }

  void step(Replica& replica, const std::vector<torch::Tensor>& gradients, bool reduced, StepContext context,
            double factor) override {
    const int me = replica.local_id();
    std::vector<torch::Tensor> dense = make_dense(gradients);
    Offer& offer = offers_[static_cast<std::size_t>(me)];
    for (std::size_t p = 0; p < dense.size(); ++p) {
      offer.gradients[p] = dense[p].defined() ? dense[p].data_ptr() : nullptr;
    }
    offer.step = context.step;
    if (replicas_ > 1) {
      core_.rendezvous().arrive(me, {.what = reduced ? "apply_gradients (reduced)" : "minimize"}, nullptr);
    }
    const FlushDenormals flush;
    // After a failed step the replicas' counts may differ: the first one's holds.
    context.step = offers_.front().step;
    context.grad_scale *= factor;
    if (reduced_.empty()) {
      update_directly(me, reduced, context);
    } else {
      update_in_phases(me, reduced, context);
    }
    if (replicas_ > 1) core_.rendezvous().depart(me);
  }

  const std::vector<std::vector<torch::Tensor>>& slots() const override { return slots_; }
  void spread_slots() override {}

 private:
  // Cuts the flat memory of all groups into one range a replica, and the ranges into pieces of single parameters.
  void plan_pieces() {
    pieces_.resize(static_cast<std::size_t>(replicas_));
    for (std::size_t g = 0; g < flat_.groups().size(); ++g) {
      const FlatGroup& group = flat_.groups()[g];
      constexpr int64_t kAlign = 16;
      const int64_t step = ((group.size + replicas_ - 1) / replicas_ + kAlign - 1) / kAlign * kAlign;
      for (const std::size_t p : group.members) {
        const FlatParameter& parameter = flat_.parameters()[p];
        for (int r = 0; r < replicas_; ++r) {
          const int64_t begin = std::max(parameter.offset, step * r);
          const int64_t end = std::min(parameter.offset + parameter.size, step * (r + 1));
          if (begin >= end) continue;
          pieces_[static_cast<std::size_t>(r)].push_back({p, begin - parameter.offset, end - parameter.offset});
        }
      }
    }
  }

  std::vector<torch::Tensor> make_dense(const std::vector<torch::Tensor>& gradients) const {
    std::vector<torch::Tensor> dense;
    dense.reserve(gradients.size());
    for (std::size_t p = 0; p < gradients.size(); ++p) {
      const torch::ScalarType dtype = flat_.groups()[flat_.parameters()[p].group].dtype;
      const torch::Tensor& gradient = gradients[p];
      if (!gradient.defined() || (gradient.is_contiguous() && gradient.scalar_type() == dtype)) {
        dense.push_back(gradient);
      } else {
        dense.push_back((gradient.is_sparse() ? gradient.to_dense() : gradient).to(dtype).contiguous());
      }
    }
    return dense;
  }

  // The gradients to be added up for one parameter, at an offset; in replica order.
  int sources_of(int me, bool reduced, std::size_t parameter, int64_t offset, std::vector<const void*>& sources) const {
    int count = 0;
    const int64_t bytes = offset * item_[flat_.parameters()[parameter].group];
    for (int r = 0; r < replicas_; ++r) {
      if (reduced && r != me) continue;
      const void* gradient = offers_[static_cast<std::size_t>(r)].gradients[parameter];
      if (gradient != nullptr) sources[static_cast<std::size_t>(count++)] = static_cast<const char*>(gradient) + bytes;
    }
    return count;
  }

  // The sum of one chunk's gradients, in `scratch`, or where it is when there is only one.
  void* sum_chunk(const std::vector<const void*>& sources, int count, int64_t size, torch::ScalarType dtype,
                  void* scratch, bool in_place) const {
    if (count == 1 && in_place) return const_cast<void*>(sources[0]);
    if (count == 0) {
      std::memset(scratch, 0, static_cast<std::size_t>(size) * c10::elementSize(dtype));
    } else {
      kernels::sum_into(scratch, sources.data(), count, size, dtype);
    }
    return scratch;
  }

  template <typename Visit>
  void each_chunk(int me, const Visit& visit) const {
    for (const Piece& piece : pieces_[static_cast<std::size_t>(me)]) {
      for (int64_t at = piece.begin; at < piece.end; at += kChunk)
        visit(piece.parameter, at, std::min(kChunk, piece.end - at));
    }
  }

  // Everything in one pass.
  void update_directly(int me, bool reduced, const StepContext& context) const {
    alignas(64) char scratch[kChunk * sizeof(double)];
    std::vector<const void*> sources(static_cast<std::size_t>(replicas_));
    each_chunk(me, [&](std::size_t p, int64_t at, int64_t size) {
      const int count = sources_of(me, reduced, p, at, sources);
      const torch::ScalarType dtype = flat_.groups()[flat_.parameters()[p].group].dtype;
      update_chunk(p, at, size, sum_chunk(sources, count, size, dtype, scratch, /*in_place=*/true), 1.0, context);
    });
  }

  void update_chunk(std::size_t p, int64_t at, int64_t size, void* gradient, double trust_ratio,
                    const StepContext& context) const {
    Segment segment = segment_of(p, at, size, gradient);
    void* slots[kMaxSlots];
    fill_slots(p, at, slots);
    segment.slots = slots;
    segment.trust_ratio = trust_ratio;
    rule_.rule().update(segment, context);
    const FlatParameter& parameter = flat_.parameters()[p];
    const int64_t item = item_[parameter.group];
    const auto& homes = homes_[parameter.group];
    for (std::size_t i = 1; i < homes.size(); ++i) {
      std::memcpy(homes[i] + (parameter.offset + at) * item, segment.parameter, static_cast<std::size_t>(size * item));
    }
  }

  Segment segment_of(std::size_t p, int64_t at, int64_t size, void* gradient) const {
    const FlatParameter& parameter = flat_.parameters()[p];
    char* home = homes_[parameter.group].front() + (parameter.offset + at) * item_[parameter.group];
    return {.dtype = flat_.groups()[parameter.group].dtype,
            .parameter = home,
            .gradient = gradient,
            .size = size,
            .decay = parameter.decay};
  }

  void fill_slots(std::size_t p, int64_t at, void** slots) const {
    const FlatParameter& parameter = flat_.parameters()[p];
    const auto& homes = slot_homes_[parameter.group];
    for (std::size_t s = 0; s < homes.size(); ++s)
      slots[s] = homes[s] + (parameter.offset + at) * item_[parameter.group];
  }

  char* reduced_at(std::size_t p, int64_t at) const {
    const FlatParameter& parameter = flat_.parameters()[p];
    return static_cast<char*>(reduced_[parameter.group].data_ptr()) + (parameter.offset + at) * item_[parameter.group];
  }

  // What needs a norm of all elements first: the sums are kept, and every phase ends with a meeting.
  void update_in_phases(int me, bool reduced, StepContext context) {
    std::vector<const void*> sources(static_cast<std::size_t>(replicas_));
    double& own_norm = norms_[static_cast<std::size_t>(me)];
    own_norm = 0.0;
    each_chunk(me, [&](std::size_t p, int64_t at, int64_t size) {
      const int count = sources_of(me, reduced, p, at, sources);
      const torch::ScalarType dtype = flat_.groups()[flat_.parameters()[p].group].dtype;
      const void* sum = sum_chunk(sources, count, size, dtype, reduced_at(p, at), /*in_place=*/false);
      if (rule_.gradient().global_clipnorm > 0.0) own_norm += kernels::squared_norm(sum, size, dtype);
    });
    if (rule_.gradient().global_clipnorm > 0.0) {
      if (replicas_ > 1) core_.rendezvous().sync(me);
      double total = 0.0;
      for (const double norm : norms_) total += norm;
      context.grad_scale *=
          clip_factor(total * context.grad_scale * context.grad_scale, rule_.gradient().global_clipnorm);
    }
    if (rule_.rule().needs_norms()) prepare(me, context);
    each_chunk(me, [&](std::size_t p, int64_t at, int64_t size) {
      update_chunk(p, at, size, reduced_at(p, at), trust_ratio(p), context);
    });
  }

  void prepare(int me, const StepContext& context) {
    auto& own = parameter_norms_[static_cast<std::size_t>(me)];
    std::fill(own.begin(), own.end(), SquaredNorms{});
    each_chunk(me, [&](std::size_t p, int64_t at, int64_t size) {
      Segment segment = segment_of(p, at, size, reduced_at(p, at));
      void* slots[kMaxSlots];
      fill_slots(p, at, slots);
      segment.slots = slots;
      const SquaredNorms norms = rule_.rule().prepare(segment, context);
      own[p].parameter += norms.parameter;
      own[p].direction += norms.direction;
    });
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
  std::vector<std::vector<char*>> homes_;   // [group]: the distinct copies; the first is updated, the others copied to
  std::vector<torch::Tensor> reduced_;      // [group]: the summed gradients, where there are two phases
  std::vector<std::vector<Piece>> pieces_;  // [replica]
  std::vector<Offer> offers_;               // [replica]
  std::vector<double> norms_;               // [replica]
  std::vector<std::vector<SquaredNorms>> parameter_norms_;  // [replica][parameter]
};

}  // namespace

std::unique_ptr<UpdateEngine> make_sharded_update(StrategyCore& core, FlatParameters& flat, const Optimizer& rule) {
  return std::make_unique<ShardedUpdate>(core, flat, rule);
}

}  // namespace cohort
