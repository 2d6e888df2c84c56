// The options that a model was compiled with, as Keras writes them.
#pragma once

#include <string>
#include <vector>

#include "cohort/train/model.h"
#include "wings/keras/train/place.h"

namespace cohort {

// Returns "compile_config" of a model with these outputs, of which an only one may have no name. NotFound: Keras has no
// such loss, metric, optimizer or option.
Json write_compiled(const CompileOptions& options, const std::vector<std::string>& outputs, const FilePlace& place);

}  // namespace cohort
