// The update kernels' one source, compiled once an instruction set (COHORT_ISA) with other flags; see
// ops/kernels/vector_impl.h for why it uses nothing of the standard library.
#include "optimizer/kernels/cast_loops.h"
#include "optimizer/kernels/rule_table.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

template <typename P>
constexpr CastTable<P> kCasts = {widen_all<P>, narrow_all<P>, follow_all<P>};

}  // namespace

const UpdateTables kUpdateTables = {kTable<float, float>, kTable<double, double>};
const CastTables kCastTables = {kCasts<Half>, kCasts<BFloat16>};

}  // namespace cohort::kernels::COHORT_ISA
