// ONNX's own checker, where the build has its library.
#pragma once

#include <string>

namespace cohort::export_test {

// Returns whether this build has it.
bool has_onnx_checker();

// Checks the bytes of an ONNX file and the shapes of its values. Returns what is wrong; empty for nothing.
std::string check_onnx(const std::string& bytes);

}  // namespace cohort::export_test
