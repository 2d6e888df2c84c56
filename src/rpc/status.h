// Errors across the wire: a cohort::Error of one task is thrown in another task with the same kind and message.
#pragma once

#include <exception>
#include <string>

#include "cohort/error.h"

namespace cohort {

// The error of a task that did work which another task had finished first.
class Overtaken : public Error {
 public:
  using Error::Error;
};

// Returns whether the same call may succeed later: the other end is not there yet, was slow, or gave the call up.
bool may_pass(const Error& error);

// The end of a call, in the form in which it travels.
struct CallStatus {
  int code = 0;  // gRPC's status code; 0: success
  std::string message = "";
};

// Returns the status that stands for the error.
CallStatus status_of(const std::exception& error);

// Throws the error that the status, which is not a success, stands for. `peer` is the task that answered or should
// have.
[[noreturn]] void raise_status(const CallStatus& status, const std::string& peer);

}  // namespace cohort
