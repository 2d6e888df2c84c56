// Relations between the values of a configuration.
#pragma once

#include <string>
#include <string_view>

namespace cohort {

struct Relation {
  std::string left;
  std::string operation;  // ==, !=, <, <=, > or >=
  std::string right;
};

// InvalidArgument: it is none.
Relation parse_relation(std::string_view text);

// Of two values as text: as numbers where both are, as texts otherwise, which only have == and != (InvalidArgument).
bool holds(const Relation& relation, const std::string& left, const std::string& right);

}  // namespace cohort
