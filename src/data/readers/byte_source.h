// ByteSource: the bytes of a file from the beginning, decompressed on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "cohort/data/tfrecord.h"

namespace cohort {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills [to, to + size), less at the end only; how many there were. Unavailable: reading fails; DataLoss: what is
  // compressed is damaged.
  virtual std::size_t read(void* to, std::size_t size) = 0;
  // To this byte of those that read() gives; beyond the end there is nothing.
  virtual void seek(int64_t offset) = 0;
  // How many bytes there are behind the position, where that is known without reading.
  virtual std::optional<int64_t> left() const = 0;
};

// NotFound: the file cannot be opened.
std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& file, Compression compression);

}  // namespace cohort
