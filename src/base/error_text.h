// The message of an exception, as people and other processes read it.
#pragma once

#include <exception>
#include <string>

namespace cohort {

// Returns what(). The errors of LibTorch lose their stack trace and open with "[libtorch]".
std::string error_text(const std::exception& error);

}  // namespace cohort
