// For builds without Gloo (COHORT_WITH_GLOO).
#include "base/fail.h"
#include "collective/gloo/gloo.h"

namespace cohort {

std::unique_ptr<Wire> make_gloo(const GlooOptions& /*options*/) {
  fail<Unimplemented>(
      "[collective] gloo: this build has none; install libgloo-dev and configure with COHORT_WITH_GLOO=ON");
}

}  // namespace cohort
