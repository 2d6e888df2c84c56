// Builds without Gloo have this in its place (COHORT_WITH_GLOO).
#include "base/fail.h"
#include "collective/gloo/gloo.h"

namespace cohort {

std::unique_ptr<Transport> make_gloo(const Meeting& /*meeting*/) {
  fail_unbuilt("[collective] gloo", "install libgloo-dev and configure with COHORT_WITH_GLOO=ON");
}

}  // namespace cohort
