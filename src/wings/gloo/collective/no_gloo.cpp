// Builds without Gloo have this in its place (COHORT_WITH_GLOO).
#include "base/fail.h"
#include "wings/gloo/collective/gloo.h"

namespace cohort {

std::unique_ptr<Engine> make_gloo_engine(const Meeting& /*meeting*/) {
  fail_unbuilt("[collective] gloo", "install libgloo-dev and configure with COHORT_WITH_GLOO=ON");
}

}  // namespace cohort
