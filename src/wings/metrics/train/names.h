// The names that compile("name") knows by this wing.
#pragma once

#include <vector>

#include "base/named.h"
#include "cohort/train/loss.h"
#include "cohort/train/metric.h"

namespace cohort {

std::vector<Named<Loss>> named_losses();
std::vector<Named<Metric>> named_metrics();

}  // namespace cohort
