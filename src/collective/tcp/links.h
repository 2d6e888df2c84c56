// The connections of one rank to the others, which both ends prove to be of the same job and group before anything else
// is said. Between processes of one machine the bare socket goes on after that; between machines all is encrypted.
#pragma once

#include <memory>
#include <vector>

#include "collective/transport.h"
#include "rpc/tls.h"

namespace cohort {

struct Link {
  int socket = -1;           // who gets the link closes it
  std::shared_ptr<SSL> ssl;  // null: the bare socket goes on
};

// Connects the rank with all others, and returns the links by rank; its own has no socket. While it waits it listens on
// a port of meeting.host, and refuses strangers there. Unavailable: the host is not this machine's, or a rank did not
// connect within the timeout.
std::vector<Link> connect_links(const Meeting& meeting);

}  // namespace cohort
