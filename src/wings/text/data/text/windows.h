// The examples of a language model, cut out of a text.
#pragma once

#include <string>

#include "cohort/dataset.h"

namespace cohort::datasets {

// Returns the text as windows of seq_length + 1 bytes, each of which begins with the last byte of the one before:
// uint8 [windows, seq_length + 1]. InvalidArgument names `speaker`: seq_length is below 1, or the text is too short.
torch::Tensor windows_of(const char* speaker, const std::string& text, int64_t seq_length);

// Returns the bytes of some windows, and those that follow each of them.
Dataset examples_of(const torch::Tensor& windows);

}  // namespace cohort::datasets
