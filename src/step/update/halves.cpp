// Takes pointers into CPU tensors, as the host's kernels do. A chunk of the gradient becomes float32, and one of the
// parameter where it has no master, in memory that stays in the first cache; the rule updates it there, and it is
// rounded into the parameter: one pass over memory. Whole parameters are cast before and after where the rule takes
// such, or needs norms of them.
#include "step/update/halves.h"

#include <algorithm>
#include <array>

#include "base/fail.h"
#include "base/parallel.h"
#include "ops/flush_denormals.h"
#include "step/update/memory.h"

namespace cohort {

namespace {

// Calls visit with the casts of a dtype.
template <typename Visit>
void with_casts(torch::ScalarType dtype, const Visit& visit) {
  if (dtype == torch::kHalf) return visit(kernels::cast_tables().f16);
  if (dtype == torch::kBFloat16) return visit(kernels::cast_tables().bf16);
  fail<Internal>("[optimizer] a run of ", c10::toString(dtype), " came, Half or BFloat16 was wanted");
}

// Returns a run's master; undefined where it has none.
torch::Tensor master_of(const UpdateRule& rule, const UpdateRun& run) {
  return run.slots.size() > rule.slots().size() ? run.slots.back() : torch::Tensor();
}

void update_whole(const UpdateRule& rule, const UpdateRun& run, const StepContext& context) {
  const torch::Tensor master = master_of(rule, run);
  const torch::Tensor wide = master.defined() ? master : run.values.to(torch::kFloat);
  if (master.defined()) {
    with_casts(run.values.scalar_type(), [&]<typename P>(const kernels::CastTable<P>& casts) {
      casts.follow(master.data_ptr<float>(), static_cast<const P*>(run.values.data_ptr()), run.values.numel());
    });
  }
  const torch::Tensor gradient = run.gradient.to(torch::kFloat);
  const UpdateMemory memory(wide, {run.slots.begin(), run.slots.begin() + static_cast<int64_t>(rule.slots().size())});
  if (!rule.takes_whole()) {
    update_in_chunks(rule, memory, {wide.sizes().data(), wide.sizes().size()}, gradient.data_ptr(), run.treatment,
                     context);
  } else {
    const FlushDenormals flush;
    UpdateMemory::SlotPointers slots;
    Segment segment = memory.segment(0, wide.numel(), gradient.data_ptr(), run.treatment, slots);
    segment.shape = {wide.sizes().data(), wide.sizes().size()};
    segment.strides = {wide.strides().data(), wide.strides().size()};
    rule.update(segment, context);
  }
  run.values.copy_(wide);
}

template <typename P>
void update_chunks(const UpdateRule& rule, const UpdateRun& run, const StepContext& context,
                   const kernels::CastTable<P>& casts) {
  const torch::Tensor master = master_of(rule, run);
  auto* const values = static_cast<P*>(run.values.data_ptr());
  const auto* const gradient = static_cast<const P*>(run.gradient.data_ptr());
  const int64_t size = run.values.numel();
  parallel_for((size + kUpdateChunk - 1) / kUpdateChunk, kChunksAThread, [&](int64_t from, int64_t to) {
    const FlushDenormals flush;
    std::array<float, kUpdateChunk> wide{};
    std::array<float, kUpdateChunk> wide_gradient{};
    UpdateMemory::SlotPointers slots;
    for (int64_t begin = from * kUpdateChunk; begin < std::min(size, to * kUpdateChunk); begin += kUpdateChunk) {
      const int64_t n = std::min(kUpdateChunk, size - begin);
      float* const own = master.defined() ? master.data_ptr<float>() + begin : wide.data();
      master.defined() ? casts.follow(own, values + begin, n) : casts.widen(own, values + begin, n);
      casts.widen(wide_gradient.data(), gradient + begin, n);
      for (std::size_t s = 0; s < rule.slots().size(); ++s) slots[s] = run.slots[s].data_ptr<float>() + begin;
      rule.update({.parameter = own,
                   .gradient = wide_gradient.data(),
                   .slots = slots.data(),
                   .size = n,
                   .treatment = run.treatment},
                  context);
      casts.narrow(values + begin, own, n);
    }
  });
}

}  // namespace

void update_halves(const UpdateRule& rule, const UpdateRun& run, const DeviceScaling& scaling, StepContext context) {
  if (scaling.finite.defined() && !scaling.finite.item<bool>()) return;
  if (scaling.factor.defined()) context.grad_scale *= scaling.factor.item<double>();
  if (rule.one_by_one()) return update_whole(rule, run, context);
  with_casts(run.values.scalar_type(), [&](const auto& casts) { update_chunks(rule, run, context, casts); });
}

}  // namespace cohort
