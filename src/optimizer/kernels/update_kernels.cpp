#include "base/fail.h"
#include "base/kernels/choose.h"
#include "optimizer/kernels/update_table.h"

namespace cohort::kernels {

const UpdateTables& update_tables(Isa isa) {
  return choose(isa, baseline::kUpdateTables, avx2::kUpdateTables, avx512::kUpdateTables);
}

const UpdateTables& update_tables(Reach reach) {
  static const UpdateTables& of_host = update_tables(best_isa());
  if (reach == Reach::kHost) return of_host;
#ifdef COHORT_CUDA_KERNELS
  if (reach == Reach::kCuda) return cuda::kUpdateTables;
#endif
  fail<Internal>("[optimizer] update kernels were asked for that this build does not have");
}

}  // namespace cohort::kernels
