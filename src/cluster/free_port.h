// TCP ports of this machine on which nothing listens.
#pragma once

#include <string>
#include <vector>

namespace cohort {

// Returns a port of this host's interface, by chance, which is none of those that the system gives to connections: a
// process that listens on it a moment later is not in the way of one that has connected meanwhile. Where the system
// leaves no others it is one of those. Another process may take it before the caller does. Unavailable: the host is not
// this machine's, or no port is left.
int free_port(const std::string& host);

// Returns `count` different ports.
std::vector<int> free_ports(const std::string& host, int count);

}  // namespace cohort
