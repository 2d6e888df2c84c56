#include "rpc/door.h"

#include <fcntl.h>
#include <unistd.h>

#include <vector>

namespace cohort {

Door::Door(const std::string& host, TlsContext context, const DoorOptions& options, Enter enter)
    : context_(std::move(context)), options_(options), enter_(std::move(enter)) {
  std::vector<int> sockets = listen_on(host, 0, "[security] nothing can listen on " + host);
  ::getsockname(sockets.front(), reinterpret_cast<sockaddr*>(&address_), &length_);
  listener_.emplace("[security] the port of collectives", std::move(sockets),
                    [this](int connection, int /*socket*/) { receive(connection); });
}

Door::~Door() {
  listener_.reset();
  for (Guest& guest : guests_) {
    const std::lock_guard lock(guest.mutex);
    if (guest.socket >= 0) ::shutdown(guest.socket, SHUT_RDWR);
  }
  guests_.clear();
}

void Door::receive(int socket) {
  guests_.remove_if([](const Guest& guest) { return guest.done.load(); });
  if (guests_.size() >= options_.most_waiting) {
    ::close(socket);
    return;
  }
  Guest& guest = guests_.emplace_back();
  guest.socket = ::fcntl(socket, F_DUPFD_CLOEXEC, 0);
  guest.thread = std::jthread([this, &guest, socket] {
    try {
      prove(socket, guest);
    } catch (const std::exception&) {
      // A stranger, or one that has gone. The place is free before the connection is closed: whoever sees it closed
      // gets in.
      guest.done = true;
      guest.close_socket();
    }
    guest.done = true;
  });
}

void Door::prove(int socket, Guest& guest) {
  const Deadline deadline(options_.patience);
  TlsSocket end = TlsSocket::accepted(socket, context_, deadline);
  guest.close_socket();
  enter_(std::move(end), deadline);
}

void Door::Guest::close_socket() {
  const std::lock_guard lock(mutex);
  if (socket >= 0) ::close(std::exchange(socket, -1));
}

}  // namespace cohort
