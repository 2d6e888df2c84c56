// The one thing that the library asks of the module cohort_gloo; see open_module.cpp.
#include "wings/gloo/collective/gloo.h"

extern "C" __attribute__((visibility("default"))) void cohort_make_gloo(const cohort::Meeting& meeting,
                                                                        std::unique_ptr<cohort::Engine>& engine) {
  engine = cohort::make_gloo_engine(meeting);
}
