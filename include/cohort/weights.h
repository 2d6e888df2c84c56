// Weights in safetensors files: what Python's safetensors and PyTorch users exchange. They hold tensors, never code.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <map>
#include <string>

#include "cohort/example.h"

namespace cohort {

// Writes the tensors (any device, copied to the CPU; made contiguous) under their names. The file appears whole or not
// at all: it is written to a temporary name, flushed to the disk and renamed. Dtypes: float64, float32, float16,
// bfloat16, int64, int32, int16, int8, uint8, bool. A name twice, or another dtype: InvalidArgument; a disk that is
// full or a folder that is not there: Unavailable, NotFound. `metadata` is stored as text pairs.
void save_weights(const std::filesystem::path& file, const NamedTensors& tensors,
                  const std::map<std::string, std::string>& metadata = {});

// What a file of weights holds.
struct Weights {
  NamedTensors tensors;                         // on the CPU, in the order of their data in the file
  std::map<std::string, std::string> metadata;  // text pairs, such as the step
};

// Reads such a file. No file: NotFound; a damaged, truncated or otherwise wrong one: DataLoss that says where and what.
Weights load_weights(const std::filesystem::path& file);

}  // namespace cohort
