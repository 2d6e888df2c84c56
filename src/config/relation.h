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

// Reads a relation. InvalidArgument: the text is none.
Relation parse_relation(std::string_view text);

// Returns whether the relation holds for two values: as numbers if both are, else as texts. InvalidArgument: texts are
// compared by another operator than == and !=.
bool holds(const Relation& relation, const std::string& left, const std::string& right);

}  // namespace cohort
