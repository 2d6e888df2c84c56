// What this wing gives the core.
#include "base/extension.h"
#include "wings/xla/models/plugin_flags.h"

namespace cohort {

void install_xla() {
  extend(tpu_row());
  extend(xla_row());
  extend(plugin_flags());
}

}  // namespace cohort
