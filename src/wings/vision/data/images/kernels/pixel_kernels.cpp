#include "ops/kernels/choose.h"
#include "wings/vision/data/images/kernels/pixel_table.h"

namespace cohort::kernels {

const PixelTable& pixel_table(Isa isa) {
  return choose(isa, baseline::kPixelTable, avx2::kPixelTable, avx512::kPixelTable);
}

const PixelTable& pixel_table() {
  static const PixelTable& best = pixel_table(best_isa());
  return best;
}

}  // namespace cohort::kernels
