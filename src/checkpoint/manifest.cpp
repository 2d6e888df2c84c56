#include "checkpoint/manifest.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/fail.h"

namespace cohort {

namespace {

constexpr int64_t kFormat = 1;

std::string to_hex(uint32_t number) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", number);
  return text.data();
}

// Reads the fields of one JSON map; errors name its place.
class Fields {
 public:
  Fields(const nlohmann::json& tree, std::string place, const std::string& source)
      : tree_(tree), place_(std::move(place)), source_(source) {
    if (!tree.is_object()) refuse("", "a map");
  }

  int64_t number(const char* key) const {
    const nlohmann::json& value = at(key);
    if (!value.is_number_integer()) refuse(key, "a whole number");
    const auto found = value.get<int64_t>();
    if (found < 0 || (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX)) refuse(key, "0 or more");
    return found;
  }

  std::string text(const char* key) const {
    const nlohmann::json& value = at(key);
    if (!value.is_string()) refuse(key, "a text");
    return value.get<std::string>();
  }

  const nlohmann::json& map(const char* key) const {
    if (!at(key).is_object()) refuse(key, "a map");
    return at(key);
  }

  [[noreturn]] void refuse(const std::string& key, const char* wanted) const {
    const bool there = key.empty() || tree_.contains(key);
    const std::string place = key.empty() ? place_ : place_ + (place_.empty() ? "" : ".") + key;
    fail<DataLoss>("[checkpoint] ", source_, ": ", place.empty() ? "it" : place, " is ",
                   !there ? std::string("missing") : shorten(key.empty() ? tree_ : tree_.at(key)), ", wanted ", wanted);
  }

 private:
  static std::string shorten(const nlohmann::json& value) {
    std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return text.size() > 80 ? text.substr(0, 80) + "..." : text;
  }

  const nlohmann::json& at(const char* key) const {
    const auto found = tree_.find(key);
    if (found == tree_.end()) refuse(key, "it to be there");
    return *found;
  }

  const nlohmann::json& tree_;
  std::string place_;
  const std::string& source_;
};

std::map<std::string, std::string> texts_of(const Fields& fields, const char* key, const std::string& source) {
  std::map<std::string, std::string> texts;
  const nlohmann::json& map = fields.map(key);
  for (const auto& [name, value] : map.items()) texts[name] = Fields(map, key, source).text(name.c_str());
  return texts;
}

ManifestFile file_of(const Fields& fields) {
  ManifestFile file;
  const std::string kind = fields.text("kind");
  if (kind != "tensors" && kind != "bytes") fields.refuse("kind", "tensors or bytes");
  file.kind = kind == "tensors" ? ManifestFile::Kind::kTensors : ManifestFile::Kind::kBytes;
  file.size = static_cast<uint64_t>(fields.number("size"));
  const std::string crc = fields.text("crc32c");
  const auto [end, error] = std::from_chars(crc.data(), crc.data() + crc.size(), file.crc32c, 16);
  if (crc.size() != 8 || error != std::errc() || end != crc.data() + crc.size())
    fields.refuse("crc32c", "8 hex digits");
  return file;
}

}  // namespace

bool is_file_name(std::string_view name) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; };
  return !name.empty() && name.size() < 200 && name.front() != '.' && std::all_of(name.begin(), name.end(), allowed);
}

std::string to_json(const Manifest& manifest) {
  nlohmann::json files = nlohmann::json::object();
  for (const auto& [name, file] : manifest.files) {
    files[name] = {{"kind", file.kind == ManifestFile::Kind::kTensors ? "tensors" : "bytes"},
                   {"size", file.size},
                   {"crc32c", to_hex(file.crc32c)}};
  }
  const nlohmann::json tree{{"format", kFormat},         {"step", manifest.step},
                            {"time", manifest.time},     {"environment", manifest.environment},
                            {"values", manifest.values}, {"files", files}};
  try {
    return tree.dump(2) + "\n";
  } catch (const nlohmann::json::type_error& error) {
    fail<InvalidArgument>("[checkpoint] a value is no UTF-8 text; put bytes into CheckpointData::bytes: ",
                          error.what());
  }
}

Manifest parse_manifest(std::string_view text, const std::string& source) {
  nlohmann::json tree;
  try {
    tree = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    fail<DataLoss>("[checkpoint] ", source, ": no JSON, ", error.what());
  }
  const Fields fields(tree, "", source);
  if (const int64_t format = fields.number("format"); format != kFormat) {
    fail<Unimplemented>("[checkpoint] ", source, ": format ", format, ", this version reads format ", kFormat);
  }
  Manifest manifest{
      .step = fields.number("step"), .time = fields.number("time"), .environment = {}, .values = {}, .files = {}};
  if (tree.contains("environment")) manifest.environment = texts_of(fields, "environment", source);
  manifest.values = texts_of(fields, "values", source);
  for (const auto& [name, value] : fields.map("files").items()) {
    if (!is_file_name(name)) fields.refuse("files", "plain file names in it");
    manifest.files[name] = file_of(Fields(value, "files." + name, source));
  }
  return manifest;
}

}  // namespace cohort
