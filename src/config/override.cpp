// Reads assignments with commas between them: "a.b=1, c=[1,2], d='x'". Each value is YAML.
#include "base/fail.h"
#include "config/text.h"

namespace cohort {

namespace {

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// Splits the text at the commas outside of brackets and quotes.
std::vector<std::string_view> split_at_commas(std::string_view text, const std::string& origin) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  int depth = 0;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth == 0) {
      parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  if (quote != 0 || depth != 0) {
    fail<InvalidArgument>("[config] ", origin, ": a ", quote != 0 ? "quote" : "bracket", " in \"", text,
                          "\" has no other half");
  }
  parts.push_back(text.substr(begin));
  return parts;
}

}  // namespace

ConfigValue parse_assignments(std::string_view text, const std::string& origin) {
  ConfigValue map{.kind = ConfigValue::Kind::kMap};
  for (const std::string_view part : split_at_commas(text, origin)) {
    if (trim(part).empty()) continue;
    const std::size_t equals = part.find('=');
    const std::string key(trim(part.substr(0, equals)));
    if (equals == std::string_view::npos || key.empty()) {
      fail<InvalidArgument>("[config] ", origin, ": \"", trim(part),
                            "\", wanted key=value, YAML or the name of a file");
    }
    map.members.emplace_back(key, parse_yaml(trim(part.substr(equals + 1)), origin));
  }
  return map;
}

}  // namespace cohort
