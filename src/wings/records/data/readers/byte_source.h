// ByteSource: the bytes of a file from the beginning, decompressed on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "cohort/data/tfrecord_writer.h"

namespace cohort {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills [to, to + size), or less at the end of the file, and returns the number of bytes. Unavailable: reading fails.
  // DataLoss: the compressed bytes are damaged.
  virtual std::size_t read(void* to, std::size_t size) = 0;
  // Moves to a byte, counted in the bytes that read() returns. Beyond the end there are none.
  virtual void seek(int64_t offset) = 0;
  // Returns the number of bytes behind the position, if it is known without reading.
  virtual std::optional<int64_t> left() const = 0;
};

// Opens a file. NotFound: it cannot be opened.
std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& file, Compression compression);

}  // namespace cohort
