// The one thing that the library asks of the module cohort_gloo; see open_module.cpp.
#include "collective/gloo/gloo.h"

extern "C" __attribute__((visibility("default"))) void cohort_make_gloo(const cohort::GlooOptions& options,
                                                                        std::unique_ptr<cohort::Wire>& wire) {
  wire = cohort::make_gloo(options);
}
