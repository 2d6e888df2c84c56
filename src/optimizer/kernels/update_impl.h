// The update kernels' one source, compiled once an instruction set (COHORT_ISA) with other flags; see
// base/kernels/vector_impl.h for why it uses nothing of the standard library.
#include "optimizer/kernels/pass_loops.h"
#include "optimizer/kernels/rule_table.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

template <typename T>
constexpr PassTable<T> kPasses = {
    lamb_direction<T>, lars<T>,           lars_direction<T>, read_gradient<T>, subtract<T>, add_squares<T>,
    blend<T>,          divide_by_root<T>, scale<T>,          average<T>,       copy<T>,
};

template <typename P>
constexpr CastTable<P> kCasts = {widen_all<P>, narrow_all<P>, follow_all<P>};

}  // namespace

const UpdateTables kUpdateTables = {kTable<float, float>, kTable<double, double>};
const PassTables kPassTables = {kPasses<float>, kPasses<double>};
const CastTables kCastTables = {kCasts<Half>, kCasts<BFloat16>};

}  // namespace cohort::kernels::COHORT_ISA
