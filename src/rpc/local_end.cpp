#include "rpc/local_end.h"

#include <netdb.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/fail.h"

namespace cohort {

sockaddr_storage local_end(const std::string& host, int port, int type, SocketCall call, const std::string& failure) {
  addrinfo hints{};
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    fail<Unavailable>(failure, ": the host ", host, " cannot be resolved: ", gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> address(found, freeaddrinfo);
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
