// TFRecord, TensorFlow's file of records: of each its length, a checksum of the length, the bytes, and a checksum of
// these (CRC32C, masked); plain, or the whole file compressed.
//
//   for (const Example& record : datasets::tfrecord({"train-0.tfrecord", "train-1.tfrecord"})) use(record.x);
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "cohort/data/tfrecord_writer.h"  // IWYU pragma: export
#include "cohort/dataset.h"

namespace cohort {

struct TFRecordReaderOptions {
  // Unset: as the file's first bytes say.
  std::optional<Compression> compression = std::nullopt;
  // A record that is damaged is left out, with a warning that counts them, instead of being an error; and so is what
  // follows a damaged length, since nobody knows where the next record begins.
  bool skip_damaged = false;
};

// Reads a file from its beginning. Move-only; one thread at a time.
class TFRecordReader {
 public:
  // NotFound: the file cannot be opened.
  explicit TFRecordReader(const std::filesystem::path& file, const TFRecordReaderOptions& options = {});
  TFRecordReader(TFRecordReader&&) noexcept;
  TFRecordReader& operator=(TFRecordReader&&) noexcept;
  ~TFRecordReader();

  // Returns the next record's bytes, until the next call; nullopt at the end. DataLoss: truncated or damaged; the
  // message names the file and the offset (of the uncompressed bytes).
  std::optional<std::string_view> next();

  // Returns the place where the next record begins, in the uncompressed bytes.
  int64_t offset() const;
  // Goes to where offset() was. Plain files are not read for it; compressed ones are, from the beginning.
  void seek(int64_t offset);
  // Returns the number of damaged records that were left out.
  int64_t skipped() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

namespace datasets {

// Returns the records of the files, one after the other; x: uint8 [bytes]. A worker can read its part of the files
// (AutoShard::kFile), and a saved position is found again without reading what was before it in plain files.
Dataset tfrecord(const std::vector<std::filesystem::path>& files, const TFRecordReaderOptions& options = {});

}  // namespace datasets

}  // namespace cohort
