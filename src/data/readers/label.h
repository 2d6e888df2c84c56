// Checks labels that come from files.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>

namespace cohort {

// Compares the labels of a record with the number of classes; with 0 classes all labels are right. `source` names the
// file and the record in errors. DataLoss: a label is negative or too large.
void require_label(const torch::Tensor& label, int64_t classes, const std::string& source);

}  // namespace cohort
