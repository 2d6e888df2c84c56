// The checks of fit()'s options, and what they make of the data.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "cohort/train/model.h"

namespace cohort {

// Throws InvalidArgument, which `speaker` opens, if an option makes no sense, by itself or for a dataset of so many
// steps.
void require_fit_options(const FitOptions& options, int64_t cardinality, const std::string& speaker);

// Returns whether an epoch, a number from 1, ends with a validation.
bool validates_after(const ValidationFreq& freq, int64_t epoch);

// Returns batches whose examples weigh what class_weight says; see FitOptions.
Dataset with_class_weight(const Dataset& batches, const std::map<int64_t, double>& class_weight,
                          const std::string& speaker);
// Returns the examples to train with and those to validate with, by validation_split.
std::pair<Example, Example> split_for_validation(const Example& columns, const FitOptions& options,
                                                 const std::string& speaker);

}  // namespace cohort
