// The one thing that the library asks of the module cohort_gloo; see open_module.cpp.
#include "collective/gloo/gloo.h"

extern "C" __attribute__((visibility("default"))) void cohort_make_gloo(const cohort::Meeting& meeting,
                                                                        std::unique_ptr<cohort::Transport>& transport) {
  transport = cohort::make_gloo(meeting);
}
