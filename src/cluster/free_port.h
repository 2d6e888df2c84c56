// TCP ports of this machine on which nothing listens.
#pragma once

#include <string>
#include <vector>

namespace cohort {

// Returns a port that the system gives for this host's interface. Another process may take it before the caller does.
// Unavailable: the host is not this machine's, or no port is left.
int free_port(const std::string& host);

// Returns `count` different ports.
std::vector<int> free_ports(const std::string& host, int count);

}  // namespace cohort
