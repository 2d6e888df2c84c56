// Gives the core what this wing has.
#include "base/extension.h"
#include "wings/function/step/communicator_in_graphs.h"
#include "wings/function/train/step_functions.h"

namespace cohort {

void install_function() {
  extend(ExchangeInGraphsMaker{.make = make_communicator_in_graphs});
  extend(StepFunctionsMaker{.make = make_steps_as_functions});
}

}  // namespace cohort
