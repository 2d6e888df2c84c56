// The formats of files that a traced model is written in.
#pragma once

#include <string>

#include "wings/export/train/traced_model.h"

namespace cohort::exports {

// Return the bytes of a file.
std::string torchscript_bytes(const TracedModel& model);
std::string onnx_bytes(const TracedModel& model);

}  // namespace cohort::exports
