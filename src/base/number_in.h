// Numbers in texts that another process or a file gave.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

#include "base/fail.h"

namespace cohort {

// Returns the decimal number that the whole text is; nothing if it is none, or too large.
inline std::optional<int> parse_int(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Returns the decimal number that the whole text is. DataLoss: it is none, or too large; the message opens with `what`.
template <typename Number>
Number number_in(std::string_view text, std::string_view what) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (!text.empty() && error == std::errc() && end == text.data() + text.size()) return number;
  constexpr std::size_t kShown = 40;
  fail<DataLoss>(what, " is \"", text.substr(0, kShown), "\", which is no number of this kind");
}

}  // namespace cohort
