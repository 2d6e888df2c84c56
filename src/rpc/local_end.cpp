#include "rpc/local_end.h"

#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
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

bool can_bind(const addrinfo& address) {
  const int socket = ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, 0);
  if (socket < 0) return false;
  const bool ok = ::bind(socket, address.ai_addr, address.ai_addrlen) == 0;
  const int code = errno;
  ::close(socket);
  errno = code;
  return ok;
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

std::vector<std::string> addresses_here(const std::string& host, const std::string& failure) {
  const Addresses addresses = resolve(host, 0, SOCK_STREAM, failure);
  std::vector<std::string> list;
  int code = 0;
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    if (can_bind(*each)) {
      list.push_back(numeric(*each->ai_addr, each->ai_addrlen));
    } else {
      code = errno;
    }
  }
  if (list.empty()) fail<Unavailable>(failure, ": ", std::strerror(code));
  return list;
}

std::string why_unresolved(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) return gai_strerror(error);
  freeaddrinfo(found);
  return "";
}

std::string numeric(const sockaddr& address, socklen_t length) {
  std::array<char, NI_MAXHOST> host{};
  getnameinfo(&address, length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  return host.data();
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
