#include "base/kernels/cpu_level.h"
#include "train/kernels/update_table.h"

namespace cohort::kernels {

namespace {

UpdateTables choose() {
#if defined(__x86_64__)
  switch (cpu_level()) {
    case CpuLevel::kAvx512:
      return update_tables_avx512();
    case CpuLevel::kAvx2:
      return update_tables_avx2();
    case CpuLevel::kBaseline:
      break;
  }
#endif
  return update_tables_baseline();
}

}  // namespace

const UpdateTables& update_tables() {
  static const UpdateTables chosen = choose();
  return chosen;
}

}  // namespace cohort::kernels
