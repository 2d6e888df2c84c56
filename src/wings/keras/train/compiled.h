// The options that a model was compiled with.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "cohort/train/model.h"
#include "wings/keras/train/place.h"

namespace cohort {

// Keras' names of the reductions in the order of LossReduction, and another one of the first.
inline constexpr std::array kLossReductions = {"sum_over_batch_size", "sum", "mean_with_sample_weight", "none", "mean"};

// Returns the options of compile() in "compile_config", for a model with these outputs, of which an only one may have
// no name; nothing if the model was not compiled.
std::optional<CompileOptions> compile_options(const Json& config, const std::vector<std::string>& outputs,
                                              const FilePlace& place);

}  // namespace cohort
