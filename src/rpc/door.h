// Door: a listening socket that lets in whoever proves the job's identity, and nobody else. It is for connections that
// are no gRPC's. Strangers are turned away before a byte of theirs is looked at, and cannot keep others waiting: each
// has a thread of its own for a few seconds, and when too many are at the door further ones are turned away at once.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "rpc/listener.h"
#include "rpc/tls.h"

namespace cohort {

struct DoorOptions {
  std::chrono::milliseconds patience = std::chrono::seconds(10);  // for the proof of the other end
  std::size_t most_waiting = 64;                                  // connections that have not proved themselves yet
};

class Door {
 public:
  // The function that gets those who have proved themselves, on a thread of the door; several may at the same time.
  // What it throws ends the connection.
  using Enter = std::function<void(TlsSocket end, const Deadline& deadline)>;

  // Listens on any port of the host. Unavailable: the host is not this machine's.
  Door(const std::string& host, TlsContext context, const DoorOptions& options, Enter enter);
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;
  ~Door();

  const sockaddr_storage& address() const { return address_; }
  socklen_t address_length() const { return length_; }

 private:
  // A connection that has not proved itself yet. `socket` is another descriptor of it, by which it can be ended.
  struct Guest {
    std::mutex mutex;
    int socket = -1;
    std::atomic<bool> done = false;
    std::jthread thread;

    void close_socket();
  };

  void receive(int socket);
  void prove(int socket, Guest& guest);

  const TlsContext context_;
  const DoorOptions options_;
  const Enter enter_;
  sockaddr_storage address_{};
  socklen_t length_ = sizeof(address_);
  std::list<Guest> guests_;  // of the listener's thread
  std::optional<ConnectionListener> listener_;
};

}  // namespace cohort
