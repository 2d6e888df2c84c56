#include "checkpoint/manifest.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <span>

#include "base/crc32c.h"
#include "base/fail.h"
#include "checkpoint/manifest_fields.h"
#include "checkpoint/manifest_pieces.h"

namespace cohort {

namespace {

constexpr int64_t kFormat = 1;
constexpr int64_t kFormatOfPieces = 2;  // of a manifest that has some, which earlier versions cannot read

std::string to_hex(uint32_t number) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", number);
  return text.data();
}

std::map<std::string, std::string> texts_of(const ManifestFields& fields, const char* key, const std::string& source) {
  std::map<std::string, std::string> texts;
  const nlohmann::json& map = fields.map(key);
  for (const auto& [name, value] : map.items()) texts[name] = ManifestFields(map, key, source).text(name.c_str());
  return texts;
}

ManifestFile file_of(const ManifestFields& fields) {
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

namespace {

constexpr std::string_view kSealBegin = "{\n  \"crc32c\": \"";
constexpr std::string_view kSealEnd = "\",";

std::string seal_of(std::string_view json) {
  return c10::str(kSealBegin, to_hex(crc32c(std::as_bytes(std::span(json)))), kSealEnd);
}

}  // namespace

std::string sealed(const std::string& json) {
  return seal_of(json) + json.substr(1);
}

std::string unsealed(const std::string& text, const std::string& source) {
  const std::size_t length = kSealBegin.size() + 8 + kSealEnd.size();
  std::string json = "{" + (text.size() > length ? text.substr(length) : "");
  if (text.substr(0, length) == seal_of(json)) return json;
  fail<DataLoss>("[checkpoint] ", source, ": its bytes do not have the checksum in its first line");
}

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
  nlohmann::json tree{{"format", kFormat},         {"step", manifest.step},
                      {"time", manifest.time},     {"environment", manifest.environment},
                      {"values", manifest.values}, {"files", files}};
  if (!manifest.pieces.empty()) {
    tree["format"] = kFormatOfPieces;
    tree["pieces"] = json_of_pieces(manifest);
  }
  try {
    return tree.dump(2) + "\n";
  } catch (const nlohmann::json::type_error& error) {
    fail<InvalidArgument>("[checkpoint] a value is no UTF-8 text; put bytes into CheckpointData::bytes: ",
                          error.what());
  }
}

Manifest parse_manifest(std::string_view text, const std::string& source, Coverage coverage) {
  nlohmann::json tree;
  try {
    tree = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    fail<DataLoss>("[checkpoint] ", source, ": no JSON, ", error.what());
  }
  const ManifestFields fields(tree, "", source);
  const int64_t format = fields.number("format");
  if (format != kFormat && format != kFormatOfPieces) {
    fail<Unimplemented>("[checkpoint] ", source, ": format ", format, ", this version reads formats ", kFormat, " and ",
                        kFormatOfPieces);
  }
  Manifest manifest{.step = fields.number("step"),
                    .time = fields.number("time"),
                    .environment = {},
                    .values = {},
                    .files = {},
                    .pieces = {}};
  if (tree.contains("environment")) manifest.environment = texts_of(fields, "environment", source);
  manifest.values = texts_of(fields, "values", source);
  for (const auto& [name, value] : fields.map("files").items()) {
    if (!is_file_name(name)) fields.refuse("files", "plain file names in it");
    manifest.files[name] = file_of(ManifestFields(value, "files." + name, source));
  }
  if (format == kFormatOfPieces) parse_pieces(fields, source, coverage, manifest);
  return manifest;
}

}  // namespace cohort
