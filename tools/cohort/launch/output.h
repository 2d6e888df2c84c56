// Output: the launcher's standard output, where the lines of all workers go. It never waits for who reads it: what
// cannot be written yet is kept, and the workers' output is not read meanwhile, so that they wait instead.
#pragma once

#include <string>
#include <string_view>

namespace cohort::cli {

class Output {
 public:
  explicit Output(int fd);

  void add(std::string_view text);
  // Writes as much as can be written at once.
  void write_some();

  // To poll for writing; -1: nothing is to be written.
  int waiting_fd() const { return waiting_.empty() ? -1 : fd_; }
  bool empty() const { return waiting_.empty(); }
  bool full() const;
  // Whether its reader has gone, as that of `cohort launch ... | head` does.
  bool broken() const { return broken_; }

 private:
  int fd_;
  bool regular_ = false;  // a file on a disk, which never lets a writer wait
  std::string waiting_;
  bool broken_ = false;
  bool failed_ = false;
};

}  // namespace cohort::cli
