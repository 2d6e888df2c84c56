// What this wing gives the core.
#include "base/extension.h"

namespace cohort {

void install_text() {}

}  // namespace cohort
