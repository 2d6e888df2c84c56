// A child process whose output is read line by line.
#pragma once

#include <sys/types.h>

#include <deque>
#include <fstream>
#include <string>
#include <string_view>

#include "wings/launch/guard.h"
#include "wings/launch/output.h"
#include "wings/launch/plan.h"

namespace cohort::cli {

class Child {
 public:
  // Starts the command in a process group of its own, which the guard watches and which dies with the launcher. If the
  // guard does not admit it, it is killed before it becomes the command. Its output goes to `output`, each line after
  // "[worker 0] ", and unchanged to the file `log`, if that is not empty. A line that is longer than 64 KiB comes in
  // pieces. Unavailable: it cannot be started.
  Child(const WorkerPlan& plan, Output& output, const std::string& log, const Guard& guard);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }
  int output() const { return output_; }  // the descriptor to poll for reading; -1: closed
  bool running() const { return running_; }

  // Passes on a part of the output that has arrived, so that a worker that writes without end leaves time for others.
  // Never waits.
  void read() { (void)read_some(); }
  void kill(int signal) const;  // sends it to the whole process group
  void ended(int status);       // takes the status that waitpid() returned

  bool succeeded() const;
  // Returns the exit status as a shell gives it: 128 + the signal that killed the process.
  int exit_code() const;
  // Returns how the process ended: "exited with status 3", "was killed by signal 9 (Killed)".
  std::string fate() const;
  // Returns its last lines of output.
  const std::deque<std::string>& last_lines() const { return last_lines_; }

 private:
  std::size_t read_some();  // returns the number of bytes
  void take(std::string_view output);
  void file(std::string_view output);  // writes it to the log
  void write_line(const std::string& line);
  void close_all();

  std::string name_;
  Output& to_;
  std::ofstream log_;
  pid_t pid_ = -1;
  int output_ = -1;
  int input_ = -1;  // the end of its standard input to write to
  bool running_ = true;
  int status_ = 0;
  std::string partial_;  // the beginning of a line that has not ended
  std::deque<std::string> last_lines_;
};

}  // namespace cohort::cli
