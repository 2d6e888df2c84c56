// Weights in safetensors files, the format that users of Python and PyTorch exchange. The files hold tensors, never
// code.
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

// The contents of a file of weights.
struct Weights {
  NamedTensors tensors;                         // on the CPU, in the order of their data in the file
  std::map<std::string, std::string> metadata;  // text pairs, such as the step
};

// Reads such a file. NotFound: there is none. DataLoss: the file is damaged; the message says where and how.
Weights load_weights(const std::filesystem::path& file);

}  // namespace cohort
