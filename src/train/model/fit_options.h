// The checks of fit()'s options.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/train/model.h"

namespace cohort {

// Throws InvalidArgument, which `speaker` opens, if an option makes no sense, by itself or for a dataset of so many
// steps.
void require_fit_options(const FitOptions& options, int64_t cardinality, const std::string& speaker);

}  // namespace cohort
