// The workers of one attempt: started together, watched, ended together.
#pragma once

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "launch/child.h"
#include "launch/guard.h"

namespace cohort::cli {

// Signals that come to this process, as something to poll for. While it lives they do nothing else. Those that were
// ignored before it stay so: SIGHUP under nohup, SIGINT in a script's background. From its first object on SIGPIPE does
// not end this process; its children have it as it was.
class Signals {
 public:
  Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals();

  int fd() const { return fd_; }
  // The next one; 0: none is waiting.
  int next() const;

 private:
  sigset_t watched_;
  int fd_ = -1;
};

struct GroupOptions {
  std::string log_dir;                                         // of this attempt; empty: none
  std::chrono::milliseconds grace = std::chrono::seconds(30);  // from asking a worker to end to killing it
  bool until_eof = false;                                      // end when standard input does: for agents behind ssh
  int restarts_each = 0;                                       // of a process that failed; then the others are ended
  int stop_fd = -1;                                            // ask the workers to end when it can be read; -1: none
};

struct GroupEnd {
  int code = 0;          // of the first worker that failed; 0: all went well
  bool stopped = false;  // because the launcher was told to end
  bool asked = false;    // the workers were, by stop_fd, before any of them had failed
};

// Runs the workers to their end. When one fails the others are ended, and standard error says who failed, how, and what
// it said last. SIGINT, SIGTERM and SIGHUP go to the workers, which then have `grace` to end; a second one kills them.
// When nobody reads standard output any more they are ended as by SIGTERM, and the code is that of SIGPIPE unless one
// of them failed.
GroupEnd run_group(const std::vector<WorkerPlan>& workers, const GroupOptions& options, const Signals& signals,
                   Guard& guard);

}  // namespace cohort::cli
