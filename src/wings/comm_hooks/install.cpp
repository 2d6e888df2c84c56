// Gives the core what this wing has.
#include "base/extension.h"
#include "collective/gradient_compression.h"
#include "wings/comm_hooks/models/hook_flags.h"
#include "wings/comm_hooks/step/local_steps.h"
#include "wings/comm_hooks/step/power_sgd.h"
#include "wings/comm_hooks/strategy/options.h"

namespace cohort {

void install_comm_hooks() {
  extend(comm_hook_flags());
  extend(CommHookOptions{.check = check_comm_hook_options});
  extend(ExchangeMaker{.path = GradientPath::kLocalSteps, .make = make_local_steps_exchange});
  extend(GradientCompression{.name = "power_sgd",
                             .help = "by factors of low rank",
                             .make = [](const FlatParameters& flat, const ExchangeOptions& options,
                                        int local_id) -> std::unique_ptr<CommHook> {
                               return std::make_unique<PowerSgd>(flat, options.power_sgd, local_id);
                             }});
}

}  // namespace cohort
