// Gives the core what this wing has.
#include "base/extension.h"
#include "wings/parameter_server/models/server_flags.h"
#include "wings/parameter_server/models/server_part.h"
#include "wings/parameter_server/step/servers.h"
#include "wings/parameter_server/train/server_training.h"

namespace cohort {

void install_parameter_server() {
  extend(server_row());
  extend(server_flags());
  extend(part_among_servers());
  extend(steps_by_servers());
  extend(ExchangeMaker{.path = GradientPath::kServers, .make = make_servers_exchange});
}

}  // namespace cohort
