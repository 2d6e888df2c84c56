// The kernels' one source, compiled once an instruction set (COHORT_ISA); see optimizer/kernels/update_impl.h.
#include "wings/optimizers/optimizer/kernels/more_rules.h"
#include "wings/optimizers/optimizer/kernels/pass_loops.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

template <typename T>
constexpr PassTable<T> kPasses = {
    lamb_direction<T>, lars<T>,           lars_direction<T>, read_gradient<T>, subtract<T>, add_squares<T>,
    blend<T>,          divide_by_root<T>, scale<T>,          average<T>,       copy<T>,
};

}  // namespace

const MoreTables kMoreTables = {kMoreTable<float, float>, kMoreTable<double, double>};
const PassTables kPassTables = {kPasses<float>, kPasses<double>};

}  // namespace cohort::kernels::COHORT_ISA
