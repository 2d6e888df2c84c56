// The table of the update kernels of this wing for parameters of a type.
#pragma once

#include "optimizer/kernels/update_loops.h"
#include "wings/optimizers/optimizer/kernels/factored_loops.h"
#include "wings/optimizers/optimizer/kernels/keras_steps.h"
#include "wings/optimizers/optimizer/kernels/layer_loops.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

template <typename P, typename T, bool kAverages>
COHORT_LOOP surround_loop(int64_t n, P* __restrict p, T* __restrict average, CommonArgs in) {
  if (leaves_out(in)) return;
  const Surrounding<T, kAverages> around(in);
  COHORT_EACH(i, n) {
    T mean = T(0);
    if constexpr (kAverages) mean = average[i];
    const T x = around.before(weight_at(p, i, in), mean);
    around.after(x, mean);
    store_at(x, p, i, in);
    if constexpr (kAverages) average[i] = mean;
  }
}

template <typename P, typename T>
void surround(P* p, int64_t n, const CommonArgs& in) {
  auto* average = static_cast<T*>(in.average);
  if (average == nullptr) return run<surround_loop<P, T, false>>(n, p, average, in);
  run<surround_loop<P, T, true>>(n, p, average, in);
  if (in.overwrite) run<overwrite_loop<P, T>>(n, p, average, in);
}

template <typename P, typename T>
void ftrl(P* p, const P* g, T* sum, T* linear, int64_t n, const CommonArgs& in, const FtrlArgs& args) {
  return args.exponent == 0.5 ? update_two<FtrlStep<T, true>>(p, g, sum, linear, n, in, args)
                              : update_two<FtrlStep<T, false>>(p, g, sum, linear, n, in, args);
}

template <typename P, typename T>
constexpr MoreTable<P, T> kMoreTable = {
    update_two<AdadeltaStep<T>, P, T>,
    update_two<AdamaxStep<T>, P, T>,
    update_two<NadamStep<T>, P, T>,
    ftrl<P, T>,
    update_one<LionStep<T>, P, T>,
    surround<P, T>,
    find_norms<LambStep<T>, P, T>,
    lars_norms<P, T>,
    add_norms,
    adafactor_norms<P, T>,
    update_layers<LambStep<T>, P, T>,
    lars_layers<P, T>,
    adafactor<P, T>,
};

}  // namespace

}  // namespace cohort::kernels::COHORT_ISA
