#include <yaml-cpp/yaml.h>

#include <set>

#include "base/fail.h"
#include "config/text.h"

namespace cohort {

namespace {

// Aliases can make a small text a huge value.
constexpr int64_t kMostValues = 100'000;
constexpr int kDeepest = 100;

class Converter {
 public:
  explicit Converter(const std::string& origin) : origin_(origin) {}

  ConfigValue convert(const YAML::Node& node, int depth = 0) {
    const int64_t line = node.Mark().line + 1;
    if (depth > kDeepest || ++values_ > kMostValues) {
      fail<InvalidArgument>("[config] ", origin_, ", line ", line, ": more than ", kMostValues,
                            " values, or deeper than ", kDeepest, " levels");
    }
    ConfigValue value{.line = line};
    switch (node.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null:
        break;
      case YAML::NodeType::Scalar:
        value.kind = ConfigValue::Kind::kScalar;
        value.text = node.Scalar();
        break;
      case YAML::NodeType::Sequence:
        value.kind = ConfigValue::Kind::kList;
        for (const YAML::Node& item : node) value.items.push_back(convert(item, depth + 1));
        break;
      case YAML::NodeType::Map:
        value.kind = ConfigValue::Kind::kMap;
        convert_members(node, value, depth);
        break;
    }
    return value;
  }

 private:
  void convert_members(const YAML::Node& node, ConfigValue& value, int depth) {
    std::set<std::string> seen;
    for (const auto& member : node) {
      if (!member.first.IsScalar()) {
        fail<InvalidArgument>("[config] ", origin_, ", line ", member.first.Mark().line + 1, ": a key is not a text");
      }
      const std::string& key = member.first.Scalar();
      if (!seen.insert(key).second) {
        fail<InvalidArgument>("[config] ", origin_, ", line ", member.first.Mark().line + 1, ": \"", key,
                              "\" is there twice");
      }
      value.members.emplace_back(key, convert(member.second, depth + 1));
    }
  }

  const std::string& origin_;
  int64_t values_ = 0;
};

}  // namespace

ConfigValue parse_yaml(std::string_view text, const std::string& origin) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.size() > 1)
      fail<InvalidArgument>("[config] ", origin, ": ", documents.size(), " documents, wanted one");
    return documents.empty() ? ConfigValue{} : Converter(origin).convert(documents.front());
  } catch (const YAML::Exception& error) {
    const std::string where = error.mark.is_null() ? "" : c10::str(", line ", error.mark.line + 1);
    fail<InvalidArgument>("[config] ", origin, where, ": this is not YAML: ", error.msg);
  }
}

}  // namespace cohort
