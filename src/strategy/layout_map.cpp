#include <algorithm>
#include <regex>

#include "base/fail.h"
#include "cohort/parallel/axes.h"

namespace cohort {

LayoutMap::LayoutMap(std::initializer_list<std::pair<std::string, ParameterAxes>> entries) {
  for (const auto& [pattern, axes] : entries) add(pattern, axes);
}

void LayoutMap::add(const std::string& pattern, const ParameterAxes& axes) {
  const auto same = [&](const auto& entry) { return entry.first == pattern; };
  if (std::any_of(entries_.begin(), entries_.end(), same)) {
    fail<InvalidArgument>("[mesh] layout: \"", pattern, "\" is there twice");
  }
  try {
    (void)std::regex(pattern);
  } catch (const std::regex_error& error) {
    fail<InvalidArgument>("[mesh] layout: \"", pattern, "\" is no regular expression: ", error.what());
  }
  entries_.emplace_back(pattern, axes);
}

std::optional<std::size_t> LayoutMap::find(std::string_view parameter) const {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].first == parameter) return i;
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!std::regex_search(parameter.begin(), parameter.end(), std::regex(entries_[i].first))) continue;
    if (found) {
      fail<InvalidArgument>("[mesh] layout: \"", entries_[*found].first, "\" and \"", entries_[i].first,
                            "\" are both found in the name ", parameter, "; one entry is for it");
    }
    found = i;
  }
  return found;
}

}  // namespace cohort
