// The digit classifiers.
#pragma once

#include <cstdint>
#include <filesystem>

#include "cohort/datasets.h"
#include "cohort/model.h"

namespace cohort {

Sequential mnist_mlp();
Sequential mnist_cnn();
// Adam with a cosine decay over the run, cross-entropy of logits, accuracy.
CompileOptions mnist_compile(int64_t steps);
// MNIST from the folder; drawn digits when it is empty.
datasets::TrainTest digits(const std::filesystem::path& folder, uint64_t seed);

}  // namespace cohort
