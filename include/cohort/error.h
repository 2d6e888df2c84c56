// Errors: every exception that the library throws derives from cohort::Error.
//
// A message opens with the speaker in brackets and says what came and what was wanted:
//   [device] "/gpu:x": the index must be a number or *, not "x"
// docs/errors.md says for each kind what a program can do about it.
#pragma once

#include <stdexcept>
#include <string>

namespace cohort {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The call, its arguments, or the data it was given are wrong: fix the call.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

// The call is right but the state is not: wrong scope, not compiled, mismatched collectives.
class FailedPrecondition : public Error {
 public:
  using Error::Error;
};

// A file, key, layer, device or experiment that was named is not there.
class NotFound : public Error {
 public:
  using Error::Error;
};

// Bytes that were read are damaged or cut short; the message names the file and the offset.
class DataLoss : public Error {
 public:
  using Error::Error;
};

// Something that was there is gone (a peer, a device). Rebuild, restore and go on.
class Unavailable : public Error {
 public:
  using Error::Error;
};

// A wait ended before what was waited for; the message says for whom, for what and for how long.
class DeadlineExceeded : public Error {
 public:
  using Error::Error;
};

// The work was given up because something else failed or was stopped; the cause is in the message.
class Cancelled : public Error {
 public:
  using Error::Error;
};

// This process, or another worker, is to end soon, and training has ended for it. With BackupAndRestore's
// save_before_preemption everything is saved; a program started again goes on there.
class Preempted : public Error {
 public:
  using Error::Error;
};

// The build, the back end or the strategy does not do this.
class Unimplemented : public Error {
 public:
  using Error::Error;
};

// A bug of this library: please report it.
class Internal : public Error {
 public:
  using Error::Error;
};

}  // namespace cohort
