// The distance between two names, for suggestions in error messages.
#pragma once

#include <cstddef>
#include <string_view>

namespace cohort {

// Returns V. Levenshtein's distance, in which a swap of two neighbours counts once (F. Damerau, 1964).
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace cohort
