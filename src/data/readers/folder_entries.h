// Lists the entries of a folder.
#pragma once

#include <filesystem>
#include <vector>

namespace cohort::datasets {

// Returns what is in a folder, by name. NotFound: it cannot be listed.
std::vector<std::filesystem::path> sorted_entries(const std::filesystem::path& folder);

// Returns whether the name begins with a dot.
bool is_hidden(const std::filesystem::path& entry);

}  // namespace cohort::datasets
