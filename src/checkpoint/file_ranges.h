// FileRanges: reads ranges of a file, of which many small ones may follow each other closely.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace cohort {

class FileRanges {
 public:
  // NotFound: there is no such file.
  explicit FileRanges(std::filesystem::path file);
  FileRanges(const FileRanges&) = delete;
  FileRanges& operator=(const FileRanges&) = delete;
  ~FileRanges();

  const std::filesystem::path& file() const { return file_; }
  uint64_t size() const { return size_; }
  // Fills the bytes with those of the file from a place on. DataLoss: it has fewer. Not for several threads at once.
  void read(uint64_t begin, std::span<std::byte> bytes);
  // Returns the checksum of the whole file (CRC32C).
  uint32_t checksum() const;

 private:
  void read_through(uint64_t begin, std::span<std::byte> bytes) const;

  std::filesystem::path file_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
  std::vector<std::byte> window_;  // what small ranges are copied out of
  uint64_t window_begin_ = 0;
};

}  // namespace cohort
