// The address of this machine's end of a socket.
#pragma once

#include <sys/socket.h>

#include <string>

namespace cohort {

// The call that gives a socket its local end: ::bind or ::connect.
using SocketCall = int (*)(int socket, const sockaddr* address, socklen_t length);

// Returns the own address of a socket of this type (SOCK_STREAM, SOCK_DGRAM) after the call with a host's address.
// Unavailable: the host cannot be resolved, or the call fails; its message opens with `failure`.
sockaddr_storage local_end(const std::string& host, int port, int type, SocketCall call, const std::string& failure);

}  // namespace cohort
