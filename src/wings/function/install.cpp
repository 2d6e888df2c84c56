// What this wing gives the core.
#include "base/extension.h"
#include "wings/function/step/communicator_in_graphs.h"

namespace cohort {

void install_function() {
  extend(ExchangeInGraphsMaker{.make = make_communicator_in_graphs});
}

}  // namespace cohort
