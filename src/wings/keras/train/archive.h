// The archive of a .keras file: a zip with three entries, and one for each vocabulary that a layer has learned.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace cohort {

// The entries that Keras writes.
struct KerasArchive {
  std::string config;                                    // config.json
  std::string metadata;                                  // metadata.json
  std::string weights;                                   // model.weights.h5
  std::map<std::string, std::string> vocabularies = {};  // assets/.../vocabulary.txt, by their names
};

// Reads the file. NotFound: there is none, or it has another entry. DataLoss: it is damaged, or an entry is larger than
// such a file can have.
KerasArchive read_keras_archive(const std::filesystem::path& file);
// Writes the file, whole or not at all. NotFound, Unavailable: it cannot be written.
void write_keras_archive(const std::filesystem::path& file, const KerasArchive& archive);

}  // namespace cohort
