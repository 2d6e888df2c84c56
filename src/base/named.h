// Tables of things that users choose by a name, as in Keras: "adam", "Adam", "mean_squared_error", "MeanSquaredError".
#pragma once

#include <algorithm>
#include <cctype>
#include <span>
#include <string>
#include <string_view>

#include "base/extension.h"
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

// A thing of a table: a name, and the function that makes it. Wings extend the tables.
template <typename T>
struct Named {
  std::string_view name;
  T (*make)();
  std::string_view wing = {};  // the wing that has it; empty: the core
};

// Returns the row of that name among the core's and those of wings. NotFound opens with `speaker`, names the `kind` and
// lists the rows. Unimplemented: this build has no `wing`, which has more of them.
template <typename T>
const Named<T>& find_named(std::span<const Named<T>> core, std::string_view name, const char* speaker, const char* kind,
                           std::string_view wing) {
  const std::span<const Named<T>> more = extensions<Named<T>>();
  std::string known;
  for (const auto& table : {core, more}) {
    for (const Named<T>& row : table) {
      if (same_name(row.name, name)) return row;
      known.append(known.empty() ? "" : ", ").append(row.name);
    }
  }
  const std::string missing = c10::str("[", speaker, "] there is no ", kind, " \"", name, "\"");
  const bool has_wing = std::any_of(more.begin(), more.end(), [&](const Named<T>& row) { return row.wing == wing; });
  if (!has_wing) fail_without(wing, missing, "; there are ", known, ", and others");
  fail<NotFound>(missing, "; there are ", known);
}

}  // namespace cohort
