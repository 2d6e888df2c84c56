// A TCP port of this machine that nothing listens on.
#pragma once

#include <string>
#include <vector>

namespace cohort {

// Asked of the system for this host's interface; another process may take it before the caller does. Unavailable: the
// host is not this machine's, or there is none left.
int free_port(const std::string& host);

// So many different ones.
std::vector<int> free_ports(const std::string& host, int count);

}  // namespace cohort
