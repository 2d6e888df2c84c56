// The table of the update kernels for parameters of a type.
#pragma once

#include "optimizer/kernels/update_loops.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

template <typename P, typename T>
constexpr UpdateTable<P, T> kTable = {
    sgd<P, T>,
    adam<P, T>,
    rmsprop<P, T>,
    update_one<AdagradStep<T>, P, T>,
};

}  // namespace

}  // namespace cohort::kernels::COHORT_ISA
