// The workers of one attempt: they are started together, watched, and ended together.
#pragma once

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "wings/launch/child.h"
#include "wings/launch/guard.h"

namespace cohort::cli {

// The signals that this process gets, as a descriptor to poll. They have no other effect while it lives. Signals that
// were ignored before stay ignored: SIGHUP under nohup, SIGINT in a script's background. From the first object on
// SIGPIPE does not end this process; its children have the former setting.
class Signals {
 public:
  Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals();

  int fd() const { return fd_; }
  // Returns the next signal; 0: none is waiting.
  int next() const;

 private:
  sigset_t watched_;
  int fd_ = -1;
};

struct GroupOptions {
  std::string log_dir;                                         // the folder of this attempt's logs; empty: none
  std::chrono::milliseconds grace = std::chrono::seconds(30);  // the time from asking a worker to end to killing it
  bool until_eof = false;  // ends at the end of standard input, as agents behind ssh do
  int restarts_each = 0;   // the number of restarts of a failed process before the others are ended
  int stop_fd = -1;        // ask the workers to end when it can be read; -1: none
};

struct GroupEnd {
  int code = 0;          // status of the first worker that failed; 0: none did
  bool stopped = false;  // the launcher was told to end
  bool asked = false;    // stop_fd asked the workers to end before any of them failed
};

// Runs the workers to their end. When one fails the others are ended, and standard error says which one failed, how,
// and shows its last lines. SIGINT, SIGTERM and SIGHUP go to the workers, which then have `grace` to end; a second one
// kills them. When nobody reads standard output any more they are ended as by SIGTERM, and the code is that of SIGPIPE
// unless one of them failed.
GroupEnd run_group(const std::vector<WorkerPlan>& workers, const GroupOptions& options, const Signals& signals,
                   Guard& guard);

}  // namespace cohort::cli
