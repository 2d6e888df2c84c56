// Texts of numbers of bytes.
#pragma once

#include <cstdint>
#include <string>

namespace cohort::cli {

// Returns "15.7 GiB", or less for less.
std::string bytes_text(int64_t bytes);

}  // namespace cohort::cli
