#include "base/fail.h"
#include "ops/kernels/choose.h"
#include "optimizer/kernels/update_table.h"

namespace cohort::kernels {

namespace {

[[noreturn]] void refuse_reach() {
  fail<Internal>("[optimizer] update kernels were asked for that this build does not have");
}

}  // namespace

const UpdateTables& update_tables(Isa isa) {
  return choose(isa, baseline::kUpdateTables, avx2::kUpdateTables, avx512::kUpdateTables);
}

const CastTables& cast_tables(Isa isa) {
  return choose(isa, baseline::kCastTables, avx2::kCastTables, avx512::kCastTables);
}

const UpdateTables& update_tables(Reach reach) {
  static const UpdateTables& of_host = update_tables(best_isa());
  if (reach == Reach::kHost) return of_host;
#ifdef COHORT_CUDA_KERNELS
  if (reach == Reach::kCuda) return cuda::kUpdateTables;
#endif
  refuse_reach();
}

const HalfTables& half_tables(Reach reach) {
  if (reach == Reach::kHost) return baseline::kHalfTables;
#ifdef COHORT_CUDA_KERNELS
  if (reach == Reach::kCuda) return cuda::kHalfTables;
#endif
  refuse_reach();
}

const CastTables& cast_tables() {
  static const CastTables& of_host = cast_tables(best_isa());
  return of_host;
}

}  // namespace cohort::kernels
