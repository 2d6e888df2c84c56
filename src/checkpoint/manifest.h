// The manifest of a checkpoint. It lists the contents, so that missing and damaged ones are noticed.
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
  int64_t time = 0;                                // seconds since 1970
  std::map<std::string, std::string> environment;  // see environment.h; empty in checkpoints of earlier versions
  std::map<std::string, std::string> values;
  std::map<std::string, ManifestFile> files;
};

// Returns whether a file of a checkpoint may have the name.
bool is_file_name(std::string_view name);

std::string to_json(const Manifest& manifest);

// Parses a manifest; `source` is its name in errors. DataLoss: the text is none, with the place of the error.
// Unimplemented: the format is a later one.
Manifest parse_manifest(std::string_view text, const std::string& source);

}  // namespace cohort
