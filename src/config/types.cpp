#include "config/types.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

namespace cohort {

namespace {

template <typename... Fns>
struct Overloaded : Fns... {
  using Fns::operator()...;
};
template <typename... Fns>
Overloaded(Fns...) -> Overloaded<Fns...>;

bool parse(const std::string& text, double& number) {
  const char* begin = text.data() + (!text.empty() && text[0] == '+' ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && begin != end;
}

bool parse(const std::string& text, int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && !text.empty()) return true;
  double real = 0.0;  // takes whole numbers such as 1e5
  constexpr double kExact = 9007199254740992.0;
  if (!parse(text, real) || std::abs(real) > kExact || real != std::floor(real)) return false;
  number = static_cast<int64_t>(real);
  return true;
}

bool parse(const std::string& text, bool& flag) {
  for (const char* yes : {"true", "True", "TRUE", "yes", "Yes", "on", "On"}) {
    if (text == yes) return flag = true;
  }
  for (const char* no : {"false", "False", "FALSE", "no", "No", "off", "Off"}) {
    if (text == no) return flag = false, true;
  }
  return false;
}

bool parse(const std::string& text, std::string& value) {
  value = text;
  return true;
}

template <typename T>
bool parse_into(T& target, const ConfigValue& value) {
  T parsed{};
  if (value.kind != ConfigValue::Kind::kScalar || !parse(value.text, parsed)) return false;
  target = std::move(parsed);
  return true;
}

template <typename T>
bool parse_into(std::vector<T>& target, const ConfigValue& value) {
  if (value.kind != ConfigValue::Kind::kList) return false;
  std::vector<T> parsed(value.items.size());
  for (std::size_t i = 0; i < parsed.size(); ++i) {
    if (!parse_into(parsed[i], value.items[i])) return false;
  }
  target = std::move(parsed);
  return true;
}

std::string text_of(bool flag) {
  return flag ? "true" : "false";
}
std::string text_of(int64_t number) {
  return std::to_string(number);
}
std::string text_of(double number) {
  return fmt::format("{}", number);
}
// Quotes a text as in JSON, which YAML reads too.
std::string text_of(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}
template <typename T>
std::string text_of(const std::vector<T>& list) {
  std::string text = "[";
  for (const T& each : list) text += (text.size() > 1 ? ", " : "") + text_of(each);
  return text + "]";
}

}  // namespace

std::string type_name(const ConfigFields::Target& target) {
  return std::visit(Overloaded{[](const bool*) { return "true or false"; }, [](const int64_t*) { return "integer"; },
                               [](const double*) { return "number"; }, [](const std::string*) { return "text"; },
                               [](const std::vector<int64_t>*) { return "list of integers"; },
                               [](const std::vector<double>*) { return "list of numbers"; },
                               [](const std::vector<std::string>*) { return "list of texts"; }},
                    target);
}

std::string to_text(const ConfigFields::Target& target) {
  return std::visit([](const auto* value) { return text_of(*value); }, target);
}

bool assign(const ConfigFields::Target& target, const ConfigValue& value) {
  if (value.kind == ConfigValue::Kind::kNull) {  // Model Garden's texts are null by default
    std::string* const* const text = std::get_if<std::string*>(&target);
    if (text != nullptr) (*text)->clear();
    return text != nullptr;
  }
  return std::visit([&](auto* field) { return parse_into(*field, value); }, target);
}

std::string to_text(const ConfigValue& value) {
  switch (value.kind) {
    case ConfigValue::Kind::kNull:
      return "null";
    case ConfigValue::Kind::kScalar:
      return text_of(value.text);
    case ConfigValue::Kind::kMap:
      return "a map";
    case ConfigValue::Kind::kList:
      break;
  }
  std::string text = "[";
  for (const ConfigValue& each : value.items) text += (text.size() > 1 ? ", " : "") + to_text(each);
  return text + "]";
}

}  // namespace cohort
