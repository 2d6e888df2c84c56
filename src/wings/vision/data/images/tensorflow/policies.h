// The policies of AutoAugment that Model Garden has.
#pragma once

#include <string_view>
#include <vector>

#include "cohort/data/auto_augment.h"

namespace cohort::augment {

// Returns the policies of this name. NotFound lists the names.
std::vector<SubPolicy> named_policies(std::string_view name);

}  // namespace cohort::augment
