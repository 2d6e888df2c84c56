#include "data/picture_coder.h"

#include "base/extension.h"
#include "base/fail.h"

namespace cohort {

const PictureCoder& picture_coder(const std::string& what) {
  const std::vector<PictureCoder>& all = extensions<PictureCoder>();
  if (!all.empty()) return all.front();
  fail<Unimplemented>(what, ", for which this build has no wing vision (COHORT_WINGS)");
}

}  // namespace cohort
