#include "train/layers/layer_row.h"

namespace cohort {

void detail::fail_option_value(std::string_view name, const OptionValue& came, const OptionValue& wanted) {
  constexpr std::array kSorts = {"nothing",       "a boolean", "an integer",    "a number",
                                 "a text",        "integers",  "an activation", "an initializer",
                                 "a regularizer", "layers",    "a constraint",  "numbers"};
  const std::string* const text = std::get_if<std::string>(&came);
  const std::string said = text != nullptr ? "\"" + *text + "\"" : std::string(kSorts.at(came.index()));
  if (came.index() == wanted.index()) fail<InvalidArgument>("[layers] ", name, ": there is no such value as ", said);
  fail<InvalidArgument>("[layers] ", name, " is ", said, ", wanted ", kSorts.at(wanted.index()));
}

}  // namespace cohort
