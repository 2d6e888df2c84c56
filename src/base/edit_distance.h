// How far two names are from each other, for suggestions.
#pragma once

#include <cstddef>
#include <string_view>

namespace cohort {

// V. Levenshtein's, where two neighbours that changed places count once (F. Damerau, 1964).
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace cohort
