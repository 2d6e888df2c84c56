// Gives the core what this wing has.
#include "base/extension.h"
#include "step/parameter_sharing.h"
#include "wings/sharding/step/parameter_units.h"
#include "wings/sharding/step/shard_plan.h"
#include "wings/sharding/step/sharded.h"

namespace cohort {

void install_sharding() {
  extend(ParameterSharing{.units = parameter_units, .cuts = cuts_of, .make = [](auto core, auto units, auto options) {
                            return std::static_pointer_cast<SharedParameters>(std::make_shared<ParameterShards>(
                                std::move(core), std::move(units), std::move(options)));
                          }});
  extend(ExchangeMaker{.path = GradientPath::kSharded, .make = make_sharded_exchange});
}

}  // namespace cohort
