#include "cluster/host_list.h"

#include "base/fail.h"
#include "rpc/address.h"

namespace cohort {

namespace {

constexpr std::size_t kMostHosts = 1'000'000;
constexpr const char* kTooMany = "that is more than a million hosts";

[[noreturn]] void malformed(const std::string& source, std::string_view text, const std::string& problem) {
  fail<InvalidArgument>("[cluster] ", source, " is \"", text, "\": ", problem);
}

// Splits the text at the commas that stand outside brackets.
std::vector<std::string_view> split_outside(std::string_view text, const std::string& source) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  bool inside = false;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && !inside)) {
      parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    } else if (text[i] == '[' || text[i] == ']') {
      if (inside == (text[i] == '[')) malformed(source, text, c10::str("the ", text[i], " at ", i, " does not pair"));
      inside = !inside;
    }
  }
  if (inside) malformed(source, text, "a [ is not closed");
  return parts;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// Returns what "01-03,7" stands for: 01 02 03 7. Counts before it expands, because two short ranges can mean billions.
std::vector<std::string> expand_ranges(std::string_view ranges, std::string_view text, const std::string& source,
                                       std::size_t most) {
  std::vector<std::string> numbers;
  for (const std::string_view range : split(ranges, ',')) {
    const std::size_t dash = range.find('-');
    const std::string_view first = range.substr(0, dash);
    const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
    const std::optional<int> low = parse_int(first);
    const std::optional<int> high = parse_int(last);
    if (!low || !high || *low < 0 || *high < *low) {
      malformed(source, text, c10::str("\"", range, "\" is no range of numbers"));
    }
    if (numbers.size() + static_cast<std::size_t>(*high - *low) >= most) malformed(source, text, kTooMany);
    for (int number = *low; number <= *high; ++number) {
      std::string digits = std::to_string(number);
      if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
      numbers.push_back(std::move(digits));
    }
  }
  return numbers;
}

}  // namespace

std::vector<std::string> expand_host_list(std::string_view text, const std::string& source) {
  std::vector<std::string> hosts;
  for (std::string_view part : split_outside(text, source)) {
    if (part.empty()) malformed(source, text, "a host has no name");
    std::vector<std::string> names = {""};
    while (!part.empty()) {
      const std::size_t open = part.find('[');
      for (std::string& name : names) name += part.substr(0, open);
      if (open == std::string_view::npos) break;
      const std::size_t close = part.find(']');
      const std::vector<std::string> numbers =
          expand_ranges(part.substr(open + 1, close - open - 1), text, source, kMostHosts / names.size());
      std::vector<std::string> longer;
      longer.reserve(names.size() * numbers.size());
      for (const std::string& number : numbers) {
        for (const std::string& name : names) longer.push_back(name + number);
      }
      names = std::move(longer);
      part.remove_prefix(close + 1);
    }
    if (names.size() > kMostHosts - hosts.size()) malformed(source, text, kTooMany);
    hosts.insert(hosts.end(), names.begin(), names.end());
  }
  return hosts;
}

std::vector<int> expand_task_counts(std::string_view text, const std::string& source) {
  std::vector<int> counts;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t open = part.find("(x");
    const std::optional<int> count = parse_int(part.substr(0, open));
    std::optional<int> times = 1;
    if (open != std::string_view::npos) {
      times = part.back() == ')' ? parse_int(part.substr(open + 2, part.size() - open - 3)) : std::nullopt;
    }
    if (!count || *count < 1 || !times || *times < 1 || counts.size() + static_cast<std::size_t>(*times) > kMostHosts) {
      malformed(source, text, c10::str("\"", part, "\" is no number of tasks such as 3 or 3(x2)"));
    }
    counts.insert(counts.end(), static_cast<std::size_t>(*times), *count);
  }
  return counts;
}

}  // namespace cohort
