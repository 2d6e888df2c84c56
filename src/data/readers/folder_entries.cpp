#include "data/readers/folder_entries.h"

#include <algorithm>

#include "base/fail.h"

namespace cohort::datasets {

std::vector<std::filesystem::path> sorted_entries(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> list;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) list.push_back(entry.path());
  if (error) fail<NotFound>("[data] ", folder.string(), ": cannot be listed: ", error.message());
  std::sort(list.begin(), list.end());
  return list;
}

bool is_hidden(const std::filesystem::path& entry) {
  return entry.filename().native().starts_with('.');
}

}  // namespace cohort::datasets
