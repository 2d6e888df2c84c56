// What this wing gives the core.
#include "base/extension.h"
#include "wings/parameter_server/models/server_flags.h"

namespace cohort {

void install_parameter_server() {
  extend(server_row());
  extend(server_flags());
}

}  // namespace cohort
