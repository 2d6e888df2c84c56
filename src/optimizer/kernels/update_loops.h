// The update of a run of elements: one pass over parameter, gradient and slots, with what surrounds the rule. Whatever
// varies inside a loop is a template argument, so that every loop is straight vector code.
#pragma once

#include "optimizer/kernels/half.h"
#include "optimizer/kernels/update_steps.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

template <typename Step, typename P, bool kDecay, bool kAverages>
COHORT_LOOP update_loop(int64_t n, P* __restrict p, const P* __restrict g, typename Step::Number* __restrict a,
                        typename Step::Number* __restrict b, typename Step::Number* __restrict c,
                        typename Step::Number* __restrict average, CommonArgs given, typename Step::Args args) {
  using T = typename Step::Number;
  if (leaves_out(given)) return;
  const CommonArgs in = now(given);
  const Reader<T, kDecay> read(in);
  const Surrounding<T, kAverages> around(in);
  const Step step(now(in, args));
  COHORT_EACH(i, n) {
    T mean = T(0);
    if constexpr (kAverages) mean = average[i];
    T x = around.before(weight_at(p, i, in), mean);
    T slot_a = Step::kSlots > 0 ? a[i] : T(0);
    T slot_b = Step::kSlots > 1 ? b[i] : T(0);
    T slot_c = Step::kSlots > 2 ? c[i] : T(0);
    step(x, read(widen(g[i]), x), slot_a, slot_b, slot_c);
    if constexpr (Step::kSlots > 0) a[i] = slot_a;
    if constexpr (Step::kSlots > 1) b[i] = slot_b;
    if constexpr (Step::kSlots > 2) c[i] = slot_c;
    around.after(x, mean);
    store_at(x, p, i, in);
    if constexpr (kAverages) average[i] = mean;
  }
}

template <typename P, typename T>
COHORT_LOOP overwrite_loop(int64_t n, P* __restrict p, const T* __restrict average, CommonArgs in) {
  if (leaves_out(in) || !now(in).overwrite) return;
  COHORT_EACH(i, n) store_at(average[i], p, i, in);
}

template <typename Step, typename P, typename T>
void update(P* p, const P* g, T* a, T* b, T* c, int64_t n, const CommonArgs& in, const typename Step::Args& args) {
  auto* average = static_cast<T*>(in.average);
  if (average != nullptr) {
    run<update_loop<Step, P, true, true>>(n, p, g, a, b, c, average, in, args);
    if (in.overwrite) run<overwrite_loop<P, T>>(n, p, average, in);  // in few steps
    return;
  }
  return in.decay != 0.0 ? run<update_loop<Step, P, true, false>>(n, p, g, a, b, c, average, in, args)
                         : run<update_loop<Step, P, false, false>>(n, p, g, a, b, c, average, in, args);
}

template <typename P, typename T>
void sgd(P* p, const P* g, T* buffer, int64_t n, const CommonArgs& in, const SgdArgs& args) {
  T* const none = nullptr;
  if (buffer == nullptr) return update<SgdStep<T, Momentum::kNone>>(p, g, none, none, none, n, in, args);
  if (args.nesterov) return update<SgdStep<T, Momentum::kNesterov>>(p, g, buffer, none, none, n, in, args);
  return update<SgdStep<T, Momentum::kHeavyBall>>(p, g, buffer, none, none, n, in, args);
}

template <typename P, typename T>
void adam(P* p, const P* g, T* m, T* v, T* v_max, int64_t n, const CommonArgs& in, const AdamArgs& args) {
  return v_max != nullptr ? update<AdamStep<T, true>>(p, g, m, v, v_max, n, in, args)
                          : update<AdamStep<T, false>>(p, g, m, v, v_max, n, in, args);
}

template <typename P, typename T>
void rmsprop(P* p, const P* g, T* v, T* mean, T* buffer, int64_t n, const CommonArgs& in, const RmspropArgs& args) {
  if (mean != nullptr) {
    return buffer != nullptr ? update<RmspropStep<T, true, true>>(p, g, v, mean, buffer, n, in, args)
                             : update<RmspropStep<T, true, false>>(p, g, v, mean, buffer, n, in, args);
  }
  return buffer != nullptr ? update<RmspropStep<T, false, true>>(p, g, v, buffer, mean, n, in, args)
                           : update<RmspropStep<T, false, false>>(p, g, v, mean, buffer, n, in, args);
}

// The rules with one slot or two, which have one form each.
template <typename Step, typename P, typename T>
void update_one(P* p, const P* g, T* a, int64_t n, const CommonArgs& in, const typename Step::Args& args) {
  T* const none = nullptr;
  update<Step>(p, g, a, none, none, n, in, args);
}
template <typename Step, typename P, typename T>
void update_two(P* p, const P* g, T* a, T* b, int64_t n, const CommonArgs& in, const typename Step::Args& args) {
  T* const none = nullptr;
  update<Step>(p, g, a, b, none, n, in, args);
}

}  // namespace

}  // namespace cohort::kernels::COHORT_ISA
