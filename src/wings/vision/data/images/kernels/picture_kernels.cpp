#include "base/fail.h"
#include "ops/kernels/choose.h"
#include "wings/vision/data/images/kernels/picture_table.h"

namespace cohort::kernels {

const PictureTable& picture_table(Isa isa) {
  return choose(isa, baseline::kPictureTable, avx2::kPictureTable, avx512::kPictureTable);
}

const PictureTable& picture_table(Reach reach) {
  static const PictureTable& of_host = picture_table(best_isa());
  if (reach == Reach::kHost) return of_host;
#ifdef COHORT_CUDA_KERNELS
  if (reach == Reach::kCuda) return cuda::kPictureTable;
#endif
  fail<Internal>("[image] kernels for pictures were asked for that this build does not have");
}

}  // namespace cohort::kernels
