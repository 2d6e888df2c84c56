// Compares our declaration of PJRT's binary interface with OpenXLA's header, field by field. abi_test.py compiles it
// where the header is; nothing is run.
#include "pjrt_c_api.h"

#include "wings/xla/device/pjrt_programs.h"

namespace ours = cohort::pjrt;

#define SAME_SIZE(own, theirs) static_assert(sizeof(ours::own) == sizeof(theirs), #theirs)
#define SAME_FIELD(own, theirs, field)                                                        \
  static_assert(offsetof(ours::own, field) == offsetof(theirs, field) &&                      \
                    sizeof(ours::own::field) == sizeof(static_cast<theirs*>(nullptr)->field), \
                #theirs "." #field)
#define SAME_FUNCTION(own, theirs) static_assert(offsetof(ours::Api, own) == offsetof(PJRT_Api, theirs), #theirs)
#define SAME_VALUE(own, theirs) static_assert(static_cast<int>(ours::own) == static_cast<int>(theirs), #theirs)

// GENERATED
