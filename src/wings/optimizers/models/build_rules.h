#pragma once

#include "models/config/build_rule.h"

namespace cohort {

Optimizer build_more_rule(const RuleParts& common, const OptimizerConfig::Rule& rule);

}  // namespace cohort
