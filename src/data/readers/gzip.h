// Files that may be compressed by gzip.
#pragma once

#include <filesystem>
#include <string>

namespace cohort {

// Returns the bytes, decompressed if they are gzip. Memory grows with the bytes that are really there. DataLoss names
// the offset where decompression failed.
std::string inflate_if_gzip(std::string bytes, const std::string& source);

// Returns the bytes of a file, decompressed if they are gzip. NotFound: it cannot be opened.
std::string read_maybe_gzip(const std::filesystem::path& file);

}  // namespace cohort
