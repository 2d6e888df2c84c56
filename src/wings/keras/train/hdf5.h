// Tensors in HDF5 files that lie in memory. Files are hostile: only plain datasets that lie whole in the file are read.
#pragma once

#include <torch/types.h>

#include <map>
#include <string>

#include "cohort/example.h"

namespace cohort {

// Returns all datasets by their paths, "layers/dense/vars/0". `source` opens the messages. DataLoss: the bytes are
// damaged, or a dataset does not lie in them. NotFound: there is a link, external storage, a filter, or a type
// that is not a number.
std::map<std::string, torch::Tensor> read_hdf5(const std::string& bytes, const std::string& source);

// Returns a file with these datasets, whose paths name their groups.
std::string write_hdf5(const NamedTensors& datasets);

}  // namespace cohort
