#include "base/kernels/isa.h"
#include "optimizer/kernels/update_table.h"

namespace cohort::kernels {

const UpdateTables& update_tables(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return avx512::kUpdateTables;
    case Isa::kAvx2:
      return avx2::kUpdateTables;
    default:
      return baseline::kUpdateTables;
  }
}

const UpdateTables& update_tables() {
  static const UpdateTables& best = update_tables(best_isa());
  return best;
}

}  // namespace cohort::kernels
