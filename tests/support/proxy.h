// Proxy: passes the bytes of TCP connections on, until it is told to forget them: then they stay open, and nothing
// passes any more, as after an outage in which TCP has begun to wait for long.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <list>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace cohort::testing {

class Proxy {
 public:
  // Listens on a free port of loopback, for a server on another port there.
  explicit Proxy(int to) : to_(to), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in own = at(0);
    socklen_t length = sizeof(own);
    if (::bind(listener_, reinterpret_cast<const sockaddr*>(&own), sizeof(own)) != 0 || ::listen(listener_, 16) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &length) != 0) {
      throw std::runtime_error("the proxy cannot listen");
    }
    port_ = ntohs(own.sin_port);
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;
  ~Proxy() {
    thread_.request_stop();
    thread_.join();
    for (const Pair& pair : pairs_) {
      for (const int end : pair.ends) ::close(end);
    }
    ::close(listener_);
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // Nothing passes any more on the connections that are there when it returns. Later ones work.
  void forget_connections() {
    forget_ = true;
    while (forget_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Nothing passes on the next connection.
  void forget_next_connection() { forget_next_ = true; }
  int connections() const { return connections_; }

 private:
  struct Pair {
    std::array<int, 2> ends{};
    bool forgotten = false;
    bool closed = false;
  };

  static sockaddr_in at(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  void accept() {
    Pair pair;
    pair.ends[0] = ::accept(listener_, nullptr, nullptr);
    pair.ends[1] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in server = at(to_);
    if (::connect(pair.ends[1], reinterpret_cast<const sockaddr*>(&server), sizeof(server)) != 0) pair.closed = true;
    pair.forgotten = forget_next_.exchange(false);
    pairs_.push_back(pair);
    ++connections_;
  }

  // Passes on what one end sends. The other end of a connection that has ended is closed for writing.
  static void pass(Pair& pair, std::size_t end) {
    std::array<char, 4096> bytes{};
    const ssize_t count = ::read(pair.ends.at(end), bytes.data(), bytes.size());
    if (count <= 0 || ::send(pair.ends.at(1 - end), bytes.data(), static_cast<std::size_t>(count), MSG_NOSIGNAL) < 0) {
      pair.closed = true;
      for (const int each : pair.ends) ::shutdown(each, SHUT_RDWR);
    }
  }

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (forget_) {
        for (Pair& pair : pairs_) pair.forgotten = true;
        forget_ = false;
      }
      std::vector<pollfd> places = {{.fd = listener_, .events = POLLIN, .revents = 0}};
      std::vector<Pair*> live;
      for (Pair& pair : pairs_) {
        if (pair.forgotten || pair.closed) continue;
        live.push_back(&pair);
        for (const int end : pair.ends) places.push_back({.fd = end, .events = POLLIN, .revents = 0});
      }
      if (::poll(places.data(), places.size(), 5) <= 0) continue;
      for (std::size_t i = 1; i < places.size(); ++i) {
        if (places[i].revents != 0 && !live[(i - 1) / 2]->closed) pass(*live[(i - 1) / 2], (i - 1) % 2);
      }
      if (places[0].revents != 0) accept();
    }
  }

  int to_;
  int listener_;
  int port_ = 0;
  std::list<Pair> pairs_;
  std::atomic<bool> forget_ = false;
  std::atomic<bool> forget_next_ = false;
  std::atomic<int> connections_ = 0;
  std::jthread thread_;
};

}  // namespace cohort::testing
