// AtomicFile: a file that appears under its name whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace cohort {

// Makes what was created, renamed and removed in a folder survive a power failure. Unavailable, NotFound.
void flush_folder(const std::filesystem::path& folder);

// Writes to a temporary file beside "file"; commit() flushes it to the disk, renames it and flushes the folder. Without
// a commit the temporary is removed. Errors name the file: NotFound (no such folder), Unavailable (disk full and
// others), FailedPrecondition (it is a device, a pipe or a socket, in whose place a file would be).
//
// A temporary is called "<file>.tmp.<machine>.<random>" and locked while its writer lives. Whoever writes the same file
// next removes the temporaries that killed writers have left: those of this machine at once, because the lock tells
// that their writer is dead. Locks of other machines may not be seen on a network file system, so that their
// temporaries go only after a day without a write.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path file);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void commit();

 private:
  std::filesystem::path file_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

}  // namespace cohort
