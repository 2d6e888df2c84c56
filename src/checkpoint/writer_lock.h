// WriterLock: says that this process writes to a directory, so that no other one does meanwhile. The system takes it
// back from a process that ends, however that happens, and on whatever machine of a shared file system.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace cohort {

class WriterLock {
 public:
  // Waits for `patience` while another process of this machine has the lock, which may be about to end; where that one
  // is on another machine, two minutes more: so long a file server may take to notice that a machine is gone.
  // FailedPrecondition: the other one keeps it; the message says who that is. Unavailable: the directory cannot be
  // written. A file system that has no locks gets a warning.
  WriterLock(const std::filesystem::path& directory, std::chrono::milliseconds patience);
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;
  ~WriterLock();

  // The name of the file in the directory, which says who has the lock and is gone with it.
  static constexpr const char* kFile = ".writer";

 private:
  bool attempt();
  bool is_in_place() const;
  void sign() const;

  std::filesystem::path file_;
  int descriptor_ = -1;
};

}  // namespace cohort
