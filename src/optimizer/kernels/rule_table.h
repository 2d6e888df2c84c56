// The table of the update kernels for parameters of a type.
#pragma once

#include "optimizer/kernels/factored_loops.h"
#include "optimizer/kernels/layer_loops.h"
#include "optimizer/kernels/update_loops.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

template <typename P, typename T>
constexpr UpdateTable<P, T> kTable = {
    sgd<P, T>,
    adam<P, T>,
    rmsprop<P, T>,
    update_one<AdagradStep<T>, P, T>,
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
