// The manifest of a checkpoint. It lists the contents, so that missing and damaged ones are noticed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor_piece.h"

namespace cohort {

struct ManifestFile {
  enum class Kind { kTensors, kBytes };
  Kind kind = Kind::kTensors;
  uint64_t size = 0;  // bytes
  uint32_t crc32c = 0;
};

// Where a part of a tensor is: all of an entry of a file.
struct PieceInFile {
  std::string file;
  std::string entry;
  Runs runs;  // the elements of the whole that it is, in their order
};

// A tensor that is saved in pieces, of which each of its elements is in one.
struct TensorInPieces {
  WholeTensor whole;
  std::vector<PieceInFile> pieces;
};

struct Manifest {
  int64_t step = 0;
  int64_t time = 0;                                // seconds since 1970
  std::map<std::string, std::string> environment;  // see environment.h; empty in checkpoints of earlier versions
  std::map<std::string, std::string> values;
  std::map<std::string, ManifestFile> files;
  // The tensors that are in pieces, by group and name. Their files are no groups of their own.
  std::map<std::string, std::map<std::string, TensorInPieces>> pieces;
};

// Returns whether a file of a checkpoint may have the name.
bool is_file_name(std::string_view name);

std::string to_json(const Manifest& manifest);

// Returns the text with a first line that has its checksum.
std::string sealed(const std::string& json);
// Returns the text without that line. DataLoss: it is not the checksum of the rest.
std::string unsealed(const std::string& text, const std::string& source);

// Whether the pieces of each tensor have all of its elements; those of one worker need not.
enum class Coverage { kAll, kSome };

// Parses a manifest; `source` is its name in errors. DataLoss: the text is none, with the place of the error.
// Unimplemented: the format is a later one.
Manifest parse_manifest(std::string_view text, const std::string& source, Coverage coverage = Coverage::kAll);

}  // namespace cohort
