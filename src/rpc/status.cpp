#include "rpc/status.h"

#include <grpcpp/support/status_code_enum.h>

#include "base/error_text.h"
#include "base/fail.h"

namespace cohort {

namespace {

using Code = grpc::StatusCode;

// The longest message, in bytes. It travels in a header, which must not be long.
constexpr std::size_t kLongestMessage = 2000;

template <typename Kind>
bool is(const std::exception& error) {
  return dynamic_cast<const Kind*>(&error) != nullptr;
}

Code code_of(const std::exception& error) {
  if (is<InvalidArgument>(error)) return Code::INVALID_ARGUMENT;
  if (is<FailedPrecondition>(error)) return Code::FAILED_PRECONDITION;
  if (is<NotFound>(error)) return Code::NOT_FOUND;
  if (is<DataLoss>(error)) return Code::DATA_LOSS;
  if (is<Unavailable>(error)) return Code::UNAVAILABLE;
  if (is<DeadlineExceeded>(error)) return Code::DEADLINE_EXCEEDED;
  if (is<Cancelled>(error)) return Code::CANCELLED;
  if (is<Overtaken>(error)) return Code::ALREADY_EXISTS;
  if (is<Preempted>(error)) return Code::ABORTED;
  if (is<Unimplemented>(error)) return Code::UNIMPLEMENTED;
  return Code::INTERNAL;
}

}  // namespace

bool may_pass(const Error& error) {
  return is<Unavailable>(error) || is<DeadlineExceeded>(error) || is<Cancelled>(error);
}

CallStatus status_of(const std::exception& error) {
  std::string message = error_text(error);
  if (!is<Error>(error)) message = "[rpc] " + message;
  if (message.size() > kLongestMessage) message.resize(kLongestMessage);
  return {.code = code_of(error), .message = message};
}

void raise_status(const CallStatus& status, const std::string& peer) {
  const std::string& message = status.message;
  // The message of a handler opens with its speaker; every other one is gRPC's own.
  const bool ours = message.starts_with('[');
  switch (status.code) {
    case Code::INVALID_ARGUMENT:
      throw InvalidArgument(message);
    case Code::FAILED_PRECONDITION:
      throw FailedPrecondition(message);
    case Code::NOT_FOUND:
      throw NotFound(message);
    case Code::DATA_LOSS:
      throw DataLoss(message);
    case Code::ALREADY_EXISTS:
      throw Overtaken(message);
    case Code::ABORTED:
      throw Preempted(message);
    case Code::UNAVAILABLE:
      if (ours) throw Unavailable(message);
      fail<Unavailable>("[rpc] ", peer, " cannot be reached: ", message);
    case Code::DEADLINE_EXCEEDED:
      if (ours) throw DeadlineExceeded(message);
      fail<DeadlineExceeded>("[rpc] ", peer, " did not answer in time");
    case Code::CANCELLED:
      if (ours) throw Cancelled(message);
      fail<Cancelled>("[rpc] the call of ", peer, " was given up");
    case Code::UNIMPLEMENTED:
      if (ours) throw Unimplemented(message);
      fail<Unimplemented>("[rpc] ", peer, " does not know this call: ", message);
    case Code::RESOURCE_EXHAUSTED:
      fail<InvalidArgument>("[rpc] ", peer, ": the message is too long: ", message);
    default:
      if (ours) throw Internal(message);
      fail<Internal>("[rpc] ", peer, ": ", message);
  }
}

}  // namespace cohort
