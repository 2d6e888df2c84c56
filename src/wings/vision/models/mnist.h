// The digit classifiers.
#pragma once

#include <cstdint>

#include "cohort/train/model.h"

namespace cohort {

Sequential mnist_mlp(int64_t num_classes);
Sequential mnist_cnn(int64_t num_classes);

}  // namespace cohort
