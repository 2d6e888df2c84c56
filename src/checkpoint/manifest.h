// The manifest of a checkpoint: what is in it, so that what is missing or damaged is noticed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace cohort {

struct ManifestFile {
  enum class Kind { kTensors, kBytes };
  Kind kind = Kind::kTensors;
  uint64_t size = 0;  // bytes
  uint32_t crc32c = 0;
};

struct Manifest {
  int64_t step = 0;
  int64_t time = 0;  // seconds since 1970
  std::map<std::string, std::string> values;
  std::map<std::string, ManifestFile> files;
};

// Whether a file of a checkpoint may be called so.
bool is_file_name(std::string_view name);

std::string to_json(const Manifest& manifest);

// DataLoss: no manifest, with the place; Unimplemented: a later format. `source` names it in errors.
Manifest parse_manifest(std::string_view text, const std::string& source);

}  // namespace cohort
