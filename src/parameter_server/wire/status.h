// Errors across the wire: a cohort::Error of one task is thrown in another one with its kind and message.
#pragma once

#include <grpcpp/support/status.h>

#include <exception>
#include <string>

#include "cohort/error.h"

namespace cohort {

// Another worker does the same work, and was first.
class Overtaken : public Error {
 public:
  using Error::Error;
};

grpc::Status status_of(const std::exception& error);

// Throws what the status says; `peer` is who answered or should have.
[[noreturn]] void raise_status(const grpc::Status& status, const std::string& peer);

}  // namespace cohort
