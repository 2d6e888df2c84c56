// Tables of things that users choose by a name, as in Keras: "adam", "Adam", "mean_squared_error", "MeanSquaredError".
#pragma once

#include <cctype>
#include <string>
#include <string_view>

#include "base/fail.h"

namespace cohort {

// Returns whether the names are equal but for capitals and underscores.
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

// Returns the row (with a member `name`) of that name. NotFound opens with `speaker`, names the `kind` and lists the
// rows.
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
