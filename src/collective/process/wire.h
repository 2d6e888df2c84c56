// Wire: what a back end between processes has to bring, which is messages. The collectives made of them are in
// exchange.h, the same for all back ends; tensors, checks, names in errors and aborts are ProcessCommunicator's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace cohort {

// One rank's end of a group of processes. Messages between two ranks arrive in the order in which they were sent, and
// sizes agree on both sides. One thread at a time, but for abort(). A message that does not come through within the
// group's timeout, loses its peer or is aborted makes wait() throw any std::exception: the caller finds out why.
class Wire {
 public:
  // Of a message under way; to be waited for exactly once.
  using Ticket = std::size_t;

  virtual ~Wire() = default;

  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // The memory must stay, and unchanged when it is sent, until the ticket was waited for.
  virtual Ticket send(int to, std::span<const std::byte> bytes) = 0;
  virtual Ticket receive(int from, std::span<std::byte> bytes) = 0;
  virtual void wait(Ticket ticket) = 0;

  // After an error: gives up what is still under way, whose tickets are void then. Memory may be freed afterwards.
  virtual void drop() noexcept = 0;

  // Ends the waits in progress and all later ones. From any thread.
  virtual void abort() noexcept = 0;
};

}  // namespace cohort
