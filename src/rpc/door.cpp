#include "rpc/door.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/fail.h"

namespace cohort {

namespace {

constexpr std::chrono::milliseconds kPause(50);  // when the process has no descriptor left for another connection
constexpr int kBacklog = 128;

// Returns whether accept() failed because of the connection, which is gone, and not because of this process.
bool passes(int error) {
  return error == EINTR || error == EAGAIN || error == ECONNABORTED || error == EPROTO || error == ENETDOWN ||
         error == EHOSTUNREACH || error == ENETUNREACH;
}

}  // namespace

Door::Door(const std::string& host, TlsContext context, const DoorOptions& options, Enter enter)
    : context_(std::move(context)), options_(options), enter_(std::move(enter)), wake_(::eventfd(0, EFD_CLOEXEC)) {
  listen(host);
  thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
}

Door::~Door() {
  thread_.request_stop();
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof(one));
  thread_.join();
  for (Guest& guest : guests_) {
    const std::lock_guard lock(guest.mutex);
    if (guest.socket >= 0) ::shutdown(guest.socket, SHUT_RDWR);
  }
  guests_.clear();
  for (const int fd : {socket_, wake_}) ::close(fd);
}

void Door::listen(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  int error = ::getaddrinfo(host.c_str(), "0", &hints, &found);
  if (error != 0) fail<Unavailable>("[security] the host ", host, " cannot be resolved: ", gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr && socket_ < 0; each = each->ai_next) {
    socket_ = ::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket_ >= 0 && ::bind(socket_, each->ai_addr, each->ai_addrlen) == 0 && ::listen(socket_, kBacklog) == 0 &&
        ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address_), &length_) == 0) {
      return;
    }
    error = errno;
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  ::close(wake_);
  fail<Unavailable>("[security] nothing can listen on ", host, ": ", std::strerror(error));
}

void Door::serve(const std::stop_token& stop) {
  std::array<pollfd, 2> places{
      {{.fd = socket_, .events = POLLIN, .revents = 0}, {.fd = wake_, .events = POLLIN, .revents = 0}}};
  while (!stop.stop_requested()) {
    if (::poll(places.data(), places.size(), -1) < 0 && errno != EINTR) return;
    if (stop.stop_requested()) return;
    const int socket = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket >= 0) {
      receive(socket);
    } else if (!passes(errno)) {
      std::this_thread::sleep_for(kPause);
    }
  }
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
    } catch (const std::exception&) {  // A stranger, or one that has gone: the connection is closed.
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
