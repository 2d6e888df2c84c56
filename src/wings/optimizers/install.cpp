// Gives the core what this wing has.
#include "base/extension.h"
#include "base/named.h"
#include "cohort/more_update_rules.h"
#include "optimizer/rules/optimizer_row.h"
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
  extend(optimizer_row<AdadeltaOptions>("Adadelta", Adadelta));
  extend(optimizer_row<AdamaxOptions>("Adamax", Adamax));
  extend(optimizer_row<NadamOptions>("Nadam", Nadam));
  extend(optimizer_row<FtrlOptions>("Ftrl", Ftrl));
  extend(optimizer_row<LionOptions>("Lion", Lion));
  extend(optimizer_row<LambOptions>("Lamb", LAMB));
  extend(RuleBuilder{.build = build_more_rule});
}

}  // namespace cohort
