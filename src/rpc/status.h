// Errors across the wire: a cohort::Error of one task is thrown in another one with its kind and message.
#pragma once

#include <exception>
#include <string>

#include "cohort/error.h"

namespace cohort {

// Another task does the same work, and was first.
class Overtaken : public Error {
 public:
  using Error::Error;
};

// Whether the same call may go well later: the other end is not there (yet), was slow, or gave it up.
bool may_pass(const Error& error);

// How a call ended, as it travels.
struct CallStatus {
  int code = 0;  // gRPC's; 0: well
  std::string message = "";
};

// Returns the status that tells of this error.
CallStatus status_of(const std::exception& error);

// Throws the error that the status, which is not well, tells of; `peer` is who answered or should have.
[[noreturn]] void raise_status(const CallStatus& status, const std::string& peer);

}  // namespace cohort
