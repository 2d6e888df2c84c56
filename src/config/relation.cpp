#include "config/relation.h"

#include <charconv>
#include <optional>

#include "base/fail.h"

namespace cohort {

namespace {

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(' ') - begin + 1));
}

std::optional<double> number_in(const std::string& text) {
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

Relation parse_relation(std::string_view text) {
  for (const std::string_view operation : {"==", "!=", "<=", ">=", "<", ">"}) {  // the longer ones first
    const std::size_t at = text.find(operation);
    if (at == std::string_view::npos) continue;
    Relation relation{trimmed(text.substr(0, at)), std::string(operation), trimmed(text.substr(at + operation.size()))};
    if (!relation.left.empty() && !relation.right.empty()) return relation;
  }
  fail<InvalidArgument>("[config] the restriction \"", text, "\" is no relation, wanted \"a.b == c\" or the like");
}

bool holds(const Relation& relation, const std::string& left, const std::string& right) {
  const std::optional<double> a = number_in(left);
  const std::optional<double> b = number_in(right);
  const bool numbers = a && b;
  const std::string& op = relation.operation;
  if (op == "==") return numbers ? *a == *b : left == right;
  if (op == "!=") return numbers ? *a != *b : left != right;
  if (!numbers) {
    fail<InvalidArgument>("[config] the restriction \"", relation.left, " ", op, " ", relation.right, "\" compares ",
                          left, " and ", right, ", which are not numbers");
  }
  if (op == "<") return *a < *b;
  if (op == "<=") return *a <= *b;
  if (op == ">") return *a > *b;
  return *a >= *b;
}

}  // namespace cohort
