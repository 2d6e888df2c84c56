// Tables of the core that wings extend.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "base/extension.h"

namespace cohort {

// Returns the rows of a table of the core, whose names are unique: those of wings in the places that the table has for
// them, and others behind it.
template <typename Table>
auto with_extensions(const Table& own) {
  using Row = std::decay_t<decltype(own[0])>;
  std::vector<const Row*> rows;
  for (const Row& row : own) rows.push_back(&row);
  for (const Row& more : extensions<Row>()) {
    const auto place = std::find_if(rows.begin(), rows.end(), [&](const Row* row) { return row->name == more.name; });
    place == rows.end() ? rows.push_back(&more) : static_cast<void>(*place = &more);
  }
  return rows;
}

}  // namespace cohort
