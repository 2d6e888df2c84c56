#include "cluster/free_port.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/fail.h"

namespace cohort {

int free_port(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    fail<Unavailable>("[cluster] the host ", host, " cannot be resolved: ", gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> address(found, freeaddrinfo);
  const int socket = ::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  const bool ok = socket >= 0 && ::bind(socket, address->ai_addr, address->ai_addrlen) == 0 &&
                  ::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &length) == 0;
  const int code = errno;
  if (socket >= 0) ::close(socket);
  if (!ok) fail<Unavailable>("[cluster] no port can be bound at ", host, ": ", std::strerror(code));
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&bound);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&bound);
  return ntohs(bound.ss_family == AF_INET6 ? v6->sin6_port : v4->sin_port);
}

}  // namespace cohort
