// Gives the core what this wing has.
#include "base/extension.h"
#include "base/named.h"
#include "cohort/more_update_rules.h"
#include "wings/optimizers/models/build_rules.h"

namespace cohort {

void install_optimizers() {
  extend(Named<Optimizer>{"adadelta", [] { return Adadelta(); }, "optimizers"});
  extend(Named<Optimizer>{"adamax", [] { return Adamax(); }, "optimizers"});
  extend(Named<Optimizer>{"nadam", [] { return Nadam(); }, "optimizers"});
  extend(Named<Optimizer>{"ftrl", [] { return Ftrl(); }, "optimizers"});
  extend(Named<Optimizer>{"lion", [] { return Lion(); }, "optimizers"});
  extend(Named<Optimizer>{"adafactor", [] { return Adafactor(); }, "optimizers"});
  extend(Named<Optimizer>{"lamb", [] { return LAMB(); }, "optimizers"});
  extend(Named<Optimizer>{"lars", [] { return LARS(); }, "optimizers"});
  extend(RuleBuilder{.build = build_more_rule});
}

}  // namespace cohort
