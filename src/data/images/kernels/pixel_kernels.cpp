#include "base/kernels/isa.h"
#include "data/images/kernels/pixel_table.h"

namespace cohort::kernels {

const PixelTable& pixel_table(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return avx512::kPixelTable;
    case Isa::kAvx2:
      return avx2::kPixelTable;
    default:
      return baseline::kPixelTable;
  }
}

const PixelTable& pixel_table() {
  static const PixelTable& best = pixel_table(best_isa());
  return best;
}

}  // namespace cohort::kernels
