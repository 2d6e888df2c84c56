// The addresses of this machine's ends of sockets.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

namespace cohort {

// The call that gives a socket its local end: ::bind or ::connect.
using SocketCall = int (*)(int socket, const sockaddr* address, socklen_t length);

// Returns the own address of a socket of this type (SOCK_STREAM, SOCK_DGRAM) after the call with a host's address.
// Unavailable: the host cannot be resolved, or the call fails; its message opens with `failure`.
sockaddr_storage local_end(const std::string& host, int port, int type, SocketCall call, const std::string& failure);

// Returns the numeric forms of those addresses of the host that this machine has, in the order of preference.
// Unavailable: the host cannot be resolved, or this machine has none of them; the message opens with `failure`.
std::vector<std::string> addresses_here(const std::string& host, const std::string& failure);

// Returns why the host cannot be resolved now; empty: it can.
std::string why_unresolved(const std::string& host);

// Returns the numeric form of the address.
std::string numeric(const sockaddr& address, socklen_t length);

// Returns whether all addresses of the host are loopback's, so that no other machine can reach any of them.
// Unavailable: the host cannot be resolved; the message opens with `failure`.
bool is_loopback(const std::string& host, const std::string& failure);

}  // namespace cohort
