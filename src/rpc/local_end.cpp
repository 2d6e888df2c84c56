#include "rpc/local_end.h"

#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/fail.h"

namespace cohort {

namespace {

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses resolve(const std::string& host, int port, int type, const std::string& failure) {
  addrinfo hints{};
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    fail<Unavailable>(failure, ": the host ", host, " cannot be resolved: ", gai_strerror(error));
  }
  return {found, freeaddrinfo};
}

bool is_loopback_address(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24) == 127;
  }
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

}  // namespace

bool is_loopback(const std::string& host, const std::string& failure) {
  const Addresses addresses = resolve(host, 0, SOCK_STREAM, failure);
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    if (!is_loopback_address(*each->ai_addr)) return false;
  }
  return true;
}

sockaddr_storage local_end(const std::string& host, int port, int type, SocketCall call, const std::string& failure) {
  const Addresses address = resolve(host, port, type, failure);
  const int socket = ::socket(address->ai_family, type | SOCK_CLOEXEC, 0);
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  const bool ok = socket >= 0 && call(socket, address->ai_addr, address->ai_addrlen) == 0 &&
                  ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) == 0;
  const int code = errno;
  if (socket >= 0) ::close(socket);
  if (!ok) fail<Unavailable>(failure, ": ", std::strerror(code));
  return own;
}

}  // namespace cohort
