// Output: the launcher's standard output, to which the lines of all workers go. It never waits for its reader: lines
// that cannot be written yet are kept, and meanwhile the workers' output is not read, so that the workers wait.
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

  // Returns the descriptor to poll for writing; -1: nothing waits to be written.
  int waiting_fd() const { return waiting_.empty() ? -1 : fd_; }
  bool empty() const { return waiting_.empty(); }
  bool full() const;
  // Returns whether the reader has gone, as `head` has in `cohort launch ... | head`.
  bool broken() const { return broken_; }

 private:
  int fd_;
  bool regular_ = false;  // a file on a disk, which never lets a writer wait
  std::string waiting_;
  bool broken_ = false;
  bool failed_ = false;
};

}  // namespace cohort::cli
