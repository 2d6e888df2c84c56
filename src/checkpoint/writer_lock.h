// WriterLock: the right of one process to write to a directory. The system releases it when the process ends, however
// that happens, and on any machine of a shared file system.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace cohort {

class WriterLock {
 public:
  // Takes the lock. Waits for `patience` while another process of this machine has it, because that one may be about to
  // end. If the other process is on another machine, waits two minutes more, because a file server may take so long to
  // notice that a machine is gone. FailedPrecondition names the process that keeps the lock. Unavailable: the directory
  // cannot be written. A file system without locks causes a warning.
  WriterLock(const std::filesystem::path& directory, std::chrono::milliseconds patience);
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;
  ~WriterLock();

  // Returns the process that is named as the holder of a directory's lock.
  static std::string holder_of(const std::filesystem::path& directory);

  // The name of the lock's file in the directory. It names the holder, and is removed with the lock.
  static constexpr const char* kFile = ".writer";

 private:
  bool attempt();
  bool is_in_place() const;
  void sign() const;

  std::filesystem::path file_;
  int descriptor_ = -1;
};

}  // namespace cohort
