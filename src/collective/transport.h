// Transport: what a back end between processes has to bring, which is messages. The collectives made of them are in
// algorithms/exchange.h, the same for all back ends; one that has collectives of its own brings an Engine (engine.h).
// Tensors, checks, names in errors and aborts are ProcessCommunicator's.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "rpc/tls_pem.h"

namespace cohort {

class Engine;

// A message under way. One that is destroyed before it has come through is given up; its memory may be freed then.
class Message {
 public:
  virtual ~Message() = default;
  // Returns once the message has come through. Throws any std::exception when that does not happen within the group's
  // timeout, the peer is lost or the transport is aborted: the caller finds out why.
  virtual void wait() = 0;
};

// One rank's end of a group of processes. A lane is a way of its own between two ranks: messages of one lane arrive in
// the order in which they were sent, and those of different lanes do not wait for each other. Sizes agree on both
// sides. Any thread may call, but for one lane between two ranks only one at a time.
class Transport {
 public:
  using Lane = uint32_t;
  static constexpr Lane kCollectives = 0;

  virtual ~Transport() = default;

  // Returns the name of the back end.
  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Begins to send or to receive. The memory must stay (and unchanged, if it is sent) until the message has come
  // through or is destroyed, which must happen before the transport is.
  [[nodiscard]] virtual std::unique_ptr<Message> send(int to, std::span<const std::byte> bytes, Lane lane) = 0;
  [[nodiscard]] virtual std::unique_ptr<Message> receive(int from, std::span<std::byte> bytes, Lane lane) = 0;

  // Connects some ranks, this one among them, by a transport of their own, in which they are numbered in this order.
  // All of them call it with the same arguments; `name` is new for each.
  virtual std::unique_ptr<Transport> subset(std::span<const int> ranks, const std::string& name) = 0;

  // Returns the collectives that it has of its own, of the same ranks; null: they are made of its messages. subset()
  // connects them, too, and abort() ends them.
  virtual Engine* engine() { return nullptr; }

  // Ends the waits in progress and all later ones.
  virtual void abort() noexcept = 0;
};

// The means by which the ranks of a group find each other.
struct Meeting {
  int rank = 0;
  int size = 1;
  std::string host = {};    // this rank listens here and nowhere else
  std::string prefix = {};  // tells the group's keys from those of other groups
  // What the ranks prove to each other, before anything else; nothing: whoever reaches a rank may speak to it.
  std::optional<TlsPem> identity = std::nullopt;
  bool encrypts = true;  // ranks of different machines encrypt what they send each other
  // A text that ranks of one machine have in common, which then do not encrypt what they send each other; empty: all
  // encrypt everything.
  std::string machine = {};
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  std::function<void(const std::string& key, const std::string& value)> put = {};
  // Waits for the key.
  std::function<std::string(const std::string& key, std::chrono::milliseconds timeout)> get = {};
  // Does not wait for it.
  std::function<std::optional<std::string>(const std::string& key)> find = {};
};

}  // namespace cohort
