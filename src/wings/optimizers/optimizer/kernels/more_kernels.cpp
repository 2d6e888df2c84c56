#include "base/fail.h"
#include "ops/kernels/choose.h"
#include "wings/optimizers/optimizer/kernels/more_table.h"

namespace cohort::kernels {

namespace {

[[noreturn]] void refuse_reach() {
  fail<Internal>("[optimizer] update kernels were asked for that this build does not have");
}

}  // namespace

const MoreTables& more_tables(Isa isa) {
  return choose(isa, baseline::kMoreTables, avx2::kMoreTables, avx512::kMoreTables);
}

const PassTables& pass_tables(Isa isa) {
  return choose(isa, baseline::kPassTables, avx2::kPassTables, avx512::kPassTables);
}

const MoreTables& more_tables(Reach reach) {
  static const MoreTables& of_host = more_tables(best_isa());
  if (reach == Reach::kHost) return of_host;
#ifdef COHORT_CUDA_KERNELS
  if (reach == Reach::kCuda) return cuda::kMoreTables;
#endif
  refuse_reach();
}

const MoreHalfTables& more_half_tables(Reach reach) {
  if (reach == Reach::kHost) return baseline::kMoreHalfTables;
#ifdef COHORT_CUDA_KERNELS
  if (reach == Reach::kCuda) return cuda::kMoreHalfTables;
#endif
  refuse_reach();
}

const PassTables& pass_tables() {
  static const PassTables& of_host = pass_tables(best_isa());
  return of_host;
}

}  // namespace cohort::kernels
