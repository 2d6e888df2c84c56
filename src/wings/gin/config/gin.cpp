// Bindings, macros and included files of gin's format, in the order of the text.
#include "wings/gin/config/gin.h"

#include "base/fail.h"
#include "config/text.h"
#include "wings/gin/config/parse.h"

namespace cohort {

namespace {

constexpr int kMostIncludes = 20;  // files that include each other

// Replaces the uses of macros in a value by the values of the macros.
class MacroExpansion {
 public:
  MacroExpansion(const std::map<std::string, ConfigValue>& macros, const std::string& where)
      : macros_(macros), where_(where) {}

  ConfigValue expand(const ConfigValue& value) {
    if (const std::string name = macro_of(value); !name.empty()) {
      const auto found = macros_.find(name);
      if (found == macros_.end()) fail<NotFound>("[config] ", where_, ": there is no macro ", name);
      return copy(found->second, name);
    }
    ConfigValue made = value;
    for (ConfigValue& item : made.items) item = expand(item);
    for (auto& [key, member] : made.members) member = expand(member);
    return made;
  }

 private:
  // Copies the value of a macro, in which all macros are replaced already. Its size is counted before it is copied,
  // because a few lines, each of which uses the macro before twice, can stand for more values than fit into memory.
  ConfigValue copy(const ConfigValue& value, const std::string& name) {
    count(value, name, 0);
    return value;
  }

  void count(const ConfigValue& value, const std::string& name, int depth) {
    copied_ += 1 + static_cast<int64_t>(value.text.size());
    if (copied_ > kMostCopied) {
      fail<InvalidArgument>("[config] ", where_, ": the macro ", name, " makes this longer than ", kMostCopied,
                            " values and letters");
    }
    if (depth > kDeepest) {
      fail<InvalidArgument>("[config] ", where_, ": the macro ", name, " has more than ", kDeepest,
                            " levels of brackets");
    }
    for (const ConfigValue& item : value.items) count(item, name, depth + 1);
    for (const auto& [key, member] : value.members) count(member, name, depth + 1);
  }

  static constexpr int64_t kMostCopied = 1'000'000;
  static constexpr int kDeepest = 100;

  const std::map<std::string, ConfigValue>& macros_;
  const std::string& where_;
  int64_t copied_ = 0;
};

using Macros = std::map<std::string, ConfigValue>;

void read(const GinText& text, Macros& macros, const std::function<void(const GinBinding& binding)>& set, int depth) {
  if (depth > kMostIncludes) {
    fail<InvalidArgument>("[config] ", text.origin, ": more than ", kMostIncludes, " files include each other");
  }
  for (const GinStatement& statement : parse_gin(text.text, text.origin)) {
    const std::string place = c10::str(text.origin, ", line ", statement.line);
    if (statement.kind == GinStatement::Kind::kInclude) {
      const std::filesystem::path file = text.folder / statement.name;
      const std::string included = read_config_text(file);
      read({.text = included, .origin = file.string(), .folder = file.parent_path()}, macros, set, depth + 1);
      continue;
    }
    const ConfigValue value = MacroExpansion(macros, place).expand(statement.value);
    if (statement.kind == GinStatement::Kind::kMacro) {
      macros[statement.name] = value;
    } else {
      set({.name = statement.name, .value = value, .place = place, .origin = text.origin});
    }
  }
}

}  // namespace

void read_gin(const GinText& text, Macros& macros, const std::function<void(const GinBinding& binding)>& set) {
  read(text, macros, set, 0);
}

}  // namespace cohort
