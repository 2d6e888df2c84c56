// Sockets of the file system, by which tasks of one machine and one user reach a server without the network, and
// without encryption. They lie in a folder that nobody else may enter (own_folder), so the system itself keeps
// strangers away. The name of one is made of the address on which the server listens, the task's authority and key
// (which all tasks with one secret have in common), the boot of the machine and the network namespace: tasks for which
// one of these is different do not find it, and speak TLS to the address.
#pragma once

#include <optional>
#include <string>

#include "rpc/tls_pem.h"

namespace cohort {

// Returns the file at which the server at the address ("host:port") has its local socket. It is empty if there can be
// none: without an identity, without a folder of this user's own, or if the folder's name is too long for a socket.
std::string local_socket(const std::string& address, const std::optional<TlsPem>& identity);

// Returns whether a server listens at the file now. It does not wait.
bool listens_at(const std::string& file);

// The local socket of one server, from its start to its end. It listens under the name of a draft first. When the
// server has its address too, the socket gets the name by which it is found: so a second server at an address takes
// nothing from the first one.
class LocalSocket {
 public:
  // Opens the socket, if there can be one.
  explicit LocalSocket(const std::optional<TlsPem>& identity);
  LocalSocket(const LocalSocket&) = delete;
  LocalSocket& operator=(const LocalSocket&) = delete;
  // Removes the file, unless it is a later server's.
  ~LocalSocket();

  // Returns the listening socket, whose owner is the caller then, after it got the name of the address; -1: there is
  // none, and tasks go by the network.
  int show(const std::string& address);

 private:
  const std::optional<TlsPem> identity_;
  int socket_ = -1;
  std::string draft_;
  std::string file_;
  unsigned long inode_ = 0;
};

// Returns whether the other end of a connection to a local socket is a process of this user.
bool is_own_user(int connection);

}  // namespace cohort
