// The update kernels' one source, compiled once an instruction set (COHORT_ISA) with other flags; see
// base/kernels/vector_impl.h for why it uses nothing of the standard library. Whatever varies inside a loop is a
// template argument, so that every loop is straight vector code.
#include "optimizer/kernels/keras_loops.h"
#include "optimizer/kernels/update_loops.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

template <typename T>
constexpr UpdateTable<T> kTable = {
    sgd<T>,         adam<T>,   rmsprop<T>,        adagrad<T>, lamb_direction<T>, lars<T>,          lars_direction<T>,
    adadelta<T>,    adamax<T>, nadam<T>,          ftrl<T>,    lion<T>,           read_gradient<T>, subtract<T>,
    add_squares<T>, blend<T>,  divide_by_root<T>, scale<T>,   average<T>,        copy<T>,
};

}  // namespace

const UpdateTables kUpdateTables = {kTable<float>, kTable<double>};

}  // namespace cohort::kernels::COHORT_ISA
