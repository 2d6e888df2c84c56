// An exception's message as people and other processes get to read it.
#pragma once

#include <exception>
#include <string>

namespace cohort {

// Returns what(), but for LibTorch's own errors: they lose the stack trace that they carry and get "[libtorch]" for a
// speaker.
std::string error_text(const std::exception& error);

}  // namespace cohort
