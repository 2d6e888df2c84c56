#include "wings/records/data/readers/split_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/fail.h"

namespace cohort {

namespace {

[[noreturn]] void refuse(std::string_view spec, std::string_view what) {
  fail<InvalidArgument>("[data] the split \"", spec, "\": ", what,
                        ", wanted something like train, train[:80%] or train[100:200]+test");
}

// Returns the position that "100" or "-5%" means, or nothing if the text is empty.
std::optional<int64_t> place_of(std::string_view text, int64_t size, std::string_view spec) {
  if (text.empty()) return std::nullopt;
  const bool percent = text.ends_with('%');
  const std::string_view digits = percent ? text.substr(0, text.size() - 1) : text;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    refuse(spec, c10::str("\"", text, "\" is no number of examples and no percentage"));
  }
  if (percent && (number > 100 || number < -100)) refuse(spec, c10::str(text, " is more than all of it"));
  if (percent) number = std::llround(static_cast<double>(number) * static_cast<double>(size) / 100.0);
  return std::clamp<int64_t>(number < 0 ? size + number : number, 0, size);
}

SplitPart parse_part(std::string_view part, std::string_view spec, const std::map<std::string, int64_t>& sizes) {
  const std::size_t bracket = part.find('[');
  const std::string name(part.substr(0, bracket));
  const auto found = sizes.find(name);
  if (found == sizes.end()) {
    std::string names;
    for (const auto& [each, size] : sizes) names += (names.empty() ? "" : ", ") + each;
    fail<NotFound>("[data] the split \"", spec, "\": there is no \"", name, "\", only ", names);
  }
  SplitPart result{.split = name, .first = 0, .last = found->second};
  if (bracket != std::string_view::npos) {
    const std::string_view range = part.substr(bracket + 1);
    const std::size_t colon = range.find(':');
    if (!range.ends_with(']') || colon == std::string_view::npos) refuse(spec, "no [from:to]");
    result.first = place_of(range.substr(0, colon), found->second, spec).value_or(0);
    const std::string_view to = range.substr(colon + 1, range.size() - colon - 2);
    result.last = place_of(to, found->second, spec).value_or(found->second);
  }
  if (result.first < result.last) return result;
  refuse(spec, c10::str("there is no example in ", part, " of ", found->second));
}

}  // namespace

std::vector<SplitPart> parse_split(std::string_view spec, const std::map<std::string, int64_t>& sizes) {
  std::vector<SplitPart> parts;
  std::string_view rest = spec;
  for (;;) {
    const std::size_t plus = rest.find('+');
    parts.push_back(parse_part(rest.substr(0, plus), spec, sizes));
    if (plus == std::string_view::npos) return parts;
    rest.remove_prefix(plus + 1);
  }
}

}  // namespace cohort
