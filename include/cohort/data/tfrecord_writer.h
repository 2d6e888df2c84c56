// TFRecordWriter: the writer of TFRecord files (cohort/data/tfrecord.h), also of event files.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

namespace cohort {

// The compression of the bytes of a file.
enum class Compression { kNone, kGzip, kZlib };

// Writes a file anew. Move-only; one thread at a time.
class TFRecordWriter {
 public:
  // Unavailable: the file cannot be made.
  explicit TFRecordWriter(const std::filesystem::path& file, Compression compression = Compression::kNone);
  TFRecordWriter(TFRecordWriter&&) noexcept;
  TFRecordWriter& operator=(TFRecordWriter&&) noexcept;
  // If close() was not called, writes what is not written yet, and only logs errors.
  ~TFRecordWriter();

  // Unavailable: the disk is full, or whatever else keeps the bytes from being written.
  void write(std::string_view record);
  // The same for what is still to be written, so that others see it. Only a plain file can be flushed
  // (FailedPrecondition).
  void flush();
  // The same for what is still to be written. Nothing can be written afterwards.
  void close();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort
