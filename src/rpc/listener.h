// ConnectionListener: waits for connections on listening sockets. When the process has no file descriptor left for a
// connection, the connection is closed at once, so that its other end learns of it, and the port is there again as soon
// as there are descriptors.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace cohort {

class ConnectionListener {
 public:
  // The function that gets each connection, which it owns, and the socket at which it came. It is called on the
  // listener's thread, so it must not wait.
  using Take = std::function<void(int connection, int socket)>;

  // Takes over sockets that listen. `name` opens the messages that are logged. Unavailable: there is no descriptor
  // left.
  ConnectionListener(std::string name, std::vector<int> sockets, Take take);
  ConnectionListener(const ConnectionListener&) = delete;
  ConnectionListener& operator=(const ConnectionListener&) = delete;
  ~ConnectionListener();

 private:
  void serve(const std::stop_token& stop);
  void accept_one(int socket);
  void turn_away(int socket, int error);
  void close_all();

  const std::string name_;
  const std::vector<int> sockets_;
  const Take take_;
  int wake_ = -1;
  int spare_ = -1;  // a descriptor that is given up to turn away a connection for which there is none
  bool short_of_descriptors_ = false;
  std::jthread thread_;
};

// Opens sockets that listen on all addresses of the host, at one port; 0: any port. Returns them. Unavailable: the host
// cannot be resolved, or an address is in use or not this machine's; the message opens with `failure`.
std::vector<int> listen_on(const std::string& host, int port, const std::string& failure);

// Returns the port of a socket of listen_on().
int port_of(int socket);

}  // namespace cohort
