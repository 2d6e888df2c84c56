#include "base/kernels/choose.h"
#include "optimizer/kernels/update_table.h"

namespace cohort::kernels {

const UpdateTables& update_tables(Isa isa) {
  return choose(isa, baseline::kUpdateTables, avx2::kUpdateTables, avx512::kUpdateTables);
}

const UpdateTables& update_tables() {
  static const UpdateTables& best = update_tables(best_isa());
  return best;
}

}  // namespace cohort::kernels
