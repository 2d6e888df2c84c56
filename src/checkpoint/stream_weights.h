// Files of weights that are written one tensor after the other.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/tensor_piece.h"

namespace cohort {

// Writes the tensors of a source as save_weights() does, with no more than one of them in memory.
void stream_weights(const std::filesystem::path& file, const TensorSource& source,
                    const std::map<std::string, std::string>& metadata);

}  // namespace cohort
