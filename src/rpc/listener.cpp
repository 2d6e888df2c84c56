#include "rpc/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "base/fail.h"
#include "base/log.h"

namespace cohort {

namespace {

constexpr std::chrono::milliseconds kPause(50);  // when not even the spare descriptor is there
constexpr int kBacklog = 1024;

int spare_descriptor() {
  return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

bool out_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

void set(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof(value));
}

// Returns a socket that listens at the address, or -1 and sets errno.
int listen_at(const addrinfo& where, int port) {
  sockaddr_storage address{};
  std::memcpy(&address, where.ai_addr, where.ai_addrlen);
  const auto number = htons(static_cast<uint16_t>(port));
  const int socket = ::socket(where.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return -1;
  set(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (where.ai_family == AF_INET6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
    v6.sin6_port = number;
    set(socket, IPPROTO_IPV6, IPV6_V6ONLY, IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr) ? 0 : 1);
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = number;
  }
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), where.ai_addrlen) == 0 &&
      ::listen(socket, kBacklog) == 0) {
    return socket;
  }
  const int error = errno;
  ::close(socket);
  errno = error;
  return -1;
}

// Returns whether the list has the address before this place, too.
bool came_before(const addrinfo& list, const addrinfo& place) {
  const addrinfo* each = &list;
  while (each != &place &&
         (each->ai_addrlen != place.ai_addrlen || std::memcmp(each->ai_addr, place.ai_addr, place.ai_addrlen) != 0)) {
    each = each->ai_next;
  }
  return each != &place;
}

}  // namespace

ConnectionListener::ConnectionListener(std::string name, std::vector<int> sockets, Take take)
    : name_(std::move(name)),
      sockets_(std::move(sockets)),
      take_(std::move(take)),
      wake_(::eventfd(0, EFD_CLOEXEC)),
      spare_(spare_descriptor()) {
  if (wake_ < 0) {
    const int error = errno;
    close_all();
    fail<Unavailable>(name_, " has no file descriptor to listen with: ", std::strerror(error));
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
}

ConnectionListener::~ConnectionListener() {
  thread_.request_stop();
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof(one));
  thread_.join();
  close_all();
}

void ConnectionListener::close_all() {
  for (const int socket : sockets_) ::close(socket);
  for (const int fd : {wake_, spare_}) {
    if (fd >= 0) ::close(fd);
  }
}

void ConnectionListener::serve(const std::stop_token& stop) {
  std::vector<pollfd> places;
  for (const int socket : sockets_) places.push_back({.fd = socket, .events = POLLIN, .revents = 0});
  places.push_back({.fd = wake_, .events = POLLIN, .revents = 0});
  while (!stop.stop_requested()) {
    if (::poll(places.data(), places.size(), -1) < 0 && errno != EINTR) return;
    for (std::size_t i = 0; i < sockets_.size() && !stop.stop_requested(); ++i) {
      if (places[i].revents != 0) accept_one(sockets_[i]);
    }
  }
}

void ConnectionListener::accept_one(int socket) {
  const int connection = ::accept4(socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (connection >= 0) {
    short_of_descriptors_ = false;
    take_(connection, socket);
  } else if (const int error = errno; out_of_descriptors(error)) {
    turn_away(socket, error);
  }  // else the connection has gone
}

void ConnectionListener::turn_away(int socket, int error) {
  if (!std::exchange(short_of_descriptors_, true)) {
    log().warn("{} has no file descriptor for another connection ({}), and turns it away; raise ulimit -n", name_,
               std::strerror(error));
  }
  if (spare_ < 0) std::this_thread::sleep_for(kPause);
  if (spare_ >= 0) {
    ::close(std::exchange(spare_, -1));
    const int connection = ::accept4(socket, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection >= 0) ::close(connection);
  }
  spare_ = spare_descriptor();
}

std::vector<int> listen_on(const std::string& host, int port, const std::string& failure) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), "0", &hints, &found); error != 0) {
    fail<Unavailable>(failure, ": the host ", host, " cannot be resolved: ", gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  std::vector<int> sockets;
  int error = 0;
  for (const addrinfo* each = found; each != nullptr && error != EADDRINUSE; each = each->ai_next) {
    if (came_before(*found, *each)) continue;
    const int socket = listen_at(*each, port);
    if (socket < 0) {
      error = errno;
      continue;
    }
    sockets.push_back(socket);
    port = port_of(socket);
  }
  // An address that this machine does not have, such as ::1 where there is no IPv6, may be missing, but not all.
  if (!sockets.empty() && error != EADDRINUSE) return sockets;
  for (const int opened : sockets) ::close(opened);
  fail<Unavailable>(failure, ": ", std::strerror(error));
}

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace cohort
