// Tables of what users choose by a name, as in Keras: "adam", "Adam", "mean_squared_error", "MeanSquaredError".
#pragma once

#include <cctype>
#include <string>
#include <string_view>

#include "base/fail.h"

namespace cohort {

// Capitals and underscores make no difference.
inline bool same_name(std::string_view one, std::string_view two) {
  const auto folded = [](std::string_view name) {
    std::string text;
    for (const char c : name) {
      if (c != '_') text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return text;
  };
  return folded(one) == folded(two);
}

// The row (with a member `name`) of that name. NotFound lists those that there are, after `speaker`, of the `kind`.
template <typename Table>
const auto& find_named(const Table& table, std::string_view name, const char* speaker, const char* kind) {
  std::string known;
  for (const auto& row : table) {
    if (same_name(row.name, name)) return row;
    known.append(known.empty() ? "" : ", ").append(row.name);
  }
  fail<NotFound>("[", speaker, "] there is no ", kind, " \"", name, "\"; there are ", known);
}

}  // namespace cohort
