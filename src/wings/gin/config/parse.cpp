// Gin's text format (github.com/google/gin-config), of which Cohort takes the part that is data.
#include "wings/gin/config/parse.h"

#include <cctype>

#include "base/fail.h"

namespace cohort {

namespace {

constexpr int kDeepestNesting = 50;

class GinParser {
 public:
  GinParser(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {}

  std::vector<GinStatement> parse() {
    std::vector<GinStatement> statements;
    for (skip_space(/*lines=*/true); at_ < text_.size(); skip_space(/*lines=*/true)) statements.push_back(statement());
    return statements;
  }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail<InvalidArgument>("[config] ", origin_, ", line ", line_, ": ", parts...);
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char take() {
    if (at_ >= text_.size()) refuse("the text ends within a value");
    if (text_[at_] == '\n') ++line_;
    return text_[at_++];
  }
  bool take_if(char c) {
    if (peek() != c || at_ >= text_.size()) return false;
    take();
    return true;
  }

  // Skips blanks, comments and continued lines, and the ends of lines within brackets.
  void skip_space(bool lines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') {
        take();
        take();
      } else if (c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n')) {
        take();
      } else {
        return;
      }
    }
  }

  std::string name() {
    const std::size_t begin = at_;
    while (std::isalnum(static_cast<unsigned char>(peek())) != 0 || peek() == '_' || peek() == '.') ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  GinStatement statement() {
    GinStatement made{.line = line_};
    made.name = name();
    if (made.name.empty()) refuse("\"", peek(), "\", wanted name = value");
    skip_space(/*lines=*/false);
    if (made.name == "include" && peek() != '=') {
      made.kind = GinStatement::Kind::kInclude;
      made.name = string_value().text;
      end_statement();
      return made;
    }
    if (made.name == "import" || made.name == "from") {
      refuse(made.name, " would run code; only bindings, macros and includes are read");
    }
    if (peek() == '/') refuse("the scope ", made.name, "/: scopes are for functions, of which there are none here");
    if (!take_if('=')) refuse("\"", made.name, "\" is not followed by =");
    skip_space(/*lines=*/false);
    made.kind = made.name.find('.') == std::string::npos ? GinStatement::Kind::kMacro : GinStatement::Kind::kBinding;
    made.value = value(0);
    end_statement();
    return made;
  }

  void end_statement() {
    skip_space(/*lines=*/false);
    if (at_ < text_.size() && peek() != '\n') refuse("\"", peek(), "\" after the end of a statement");
  }

  ConfigValue value(int depth) {
    if (at_ >= text_.size()) refuse("the text ends within a value");
    if (depth > kDeepestNesting) refuse("more than ", kDeepestNesting, " levels of brackets");
    const char c = peek();
    if (c == '[' || c == '(') return list(c == '[' ? ']' : ')', depth);
    if (c == '{') return map(depth);
    if (c == '\'' || c == '"') return string_value();
    if (c == '%') return macro();
    if (c == '@') refuse("a reference to code (@); only values are read");
    return word();
  }

  ConfigValue list(char end, int depth) {
    ConfigValue made{.kind = ConfigValue::Kind::kList, .line = line_};
    const bool tuple = take() == '(';
    bool comma = false;
    for (skip_space(true); !take_if(end); skip_space(true)) {
      if (at_ < text_.size() && !made.items.empty() && !comma) refuse("a comma is missing in a list");
      made.items.push_back(value(depth + 1));
      skip_space(true);
      comma = take_if(',');
    }
    // As in Python, (1) is 1.
    if (tuple && made.items.size() == 1 && !comma) return made.items.front();
    return made;
  }

  ConfigValue map(int depth) {
    ConfigValue made{.kind = ConfigValue::Kind::kMap, .line = line_};
    take();
    bool comma = true;
    for (skip_space(true); !take_if('}'); skip_space(true)) {
      if (at_ < text_.size() && !comma) refuse("a comma is missing in a map");
      const ConfigValue key = value(depth + 1);
      if (key.kind != ConfigValue::Kind::kScalar) refuse("a key of a map is not a text");
      skip_space(true);
      if (!take_if(':')) refuse("the key \"", key.text, "\" of a map is not followed by :");
      skip_space(true);
      made.members.emplace_back(key.text, value(depth + 1));
      skip_space(true);
      comma = take_if(',');
    }
    return made;
  }

  // Reads texts; neighbouring ones become one, as in Python.
  ConfigValue string_value() {
    ConfigValue made{.kind = ConfigValue::Kind::kScalar, .line = line_};
    if (peek() != '\'' && peek() != '"') refuse("\"", peek(), "\", wanted a text in quotes");
    while (peek() == '\'' || peek() == '"') {
      made.text += quoted();
      skip_space(/*lines=*/false);
    }
    return made;
  }

  std::string quoted() {
    std::string text;
    const char quote = take();
    const std::string_view triple = quote == '"' ? "\"\"\"" : "'''";
    const bool long_one = at_ + 2 <= text_.size() && text_.substr(at_ - 1, 3) == triple;
    if (long_one) at_ += 2;
    while (true) {
      if (long_one ? text_.substr(at_, 3) == triple : peek() == quote) break;
      const char c = take();
      if (c == '\n' && !long_one) refuse("a text has no closing quote");
      text += c == '\\' ? escaped() : std::string(1, c);
    }
    at_ += long_one ? 3 : 1;
    return text;
  }

  std::string escaped() {
    const char c = take();
    switch (c) {
      case 'n':
        return "\n";
      case 't':
        return "\t";
      case '\n':
        return "";
      case '\\':
      case '\'':
      case '"':
        return std::string(1, c);
      default:
        return std::string("\\") + c;
    }
  }

  ConfigValue macro() {
    take();
    const std::string used = name();
    if (used.empty()) refuse("% is not followed by the name of a macro");
    return {.kind = ConfigValue::Kind::kMap, .members = {{"%" + used, {}}}, .line = line_};
  }

  // Reads a number, True, False or None.
  ConfigValue word() {
    const std::size_t begin = at_;
    while (std::isalnum(static_cast<unsigned char>(peek())) != 0 || peek() == '_' || peek() == '.' || peek() == '+' ||
           peek() == '-') {
      ++at_;
    }
    std::string text(text_.substr(begin, at_ - begin));
    if (text == "None") return {.line = line_};
    const bool number = !text.empty() && (std::isdigit(static_cast<unsigned char>(text[0])) != 0 || text[0] == '-' ||
                                          text[0] == '+' || text[0] == '.');
    if (!number && text != "True" && text != "False") {
      refuse("\"", text.empty() ? std::string(1, peek()) : text, "\" is no value; a text stands in quotes");
    }
    if (number) std::erase(text, '_');  // as in 1_000
    return {.kind = ConfigValue::Kind::kScalar, .text = std::move(text), .line = line_};
  }

  std::string_view text_;
  const std::string& origin_;
  std::size_t at_ = 0;
  int64_t line_ = 1;
};

}  // namespace

std::vector<GinStatement> parse_gin(std::string_view text, const std::string& origin) {
  return GinParser(text, origin).parse();
}

std::string macro_of(const ConfigValue& value) {
  const bool use = value.kind == ConfigValue::Kind::kMap && value.members.size() == 1 &&
                   value.members[0].second.kind == ConfigValue::Kind::kNull && value.members[0].first.starts_with('%');
  return use ? value.members[0].first.substr(1) : "";
}

}  // namespace cohort
