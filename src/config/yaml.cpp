#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <set>
#include <sstream>

#include "base/fail.h"
#include "config/text.h"

namespace cohort {

namespace {

// The limits of a configuration. Aliases can make a huge value of a small text, so values are counted.
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

// Ignores the events of a document.
class Skipped final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnAlias(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnScalar(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {}
  void OnSequenceStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {}
  void OnMapEnd() override {}
};

// yaml-cpp finds endless documents behind some mistakes, so not all documents are asked for.
bool has_a_second_document(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Skipped skipped;
  return parser.HandleNextDocument(skipped) && parser.HandleNextDocument(skipped);
}

}  // namespace

ConfigValue parse_yaml(std::string_view given, const std::string& origin) {
  const std::string text(given);
  try {
    if (has_a_second_document(text)) {
      fail<InvalidArgument>("[config] ", origin, ": this is not YAML, or more than one document of it");
    }
    return Converter(origin).convert(YAML::Load(text));
  } catch (const YAML::Exception& error) {
    const std::string where = error.mark.is_null() ? "" : c10::str(", line ", error.mark.line + 1);
    fail<InvalidArgument>("[config] ", origin, where, ": this is not YAML: ", error.msg);
  }
}

}  // namespace cohort
