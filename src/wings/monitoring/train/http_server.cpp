#include "wings/monitoring/train/http_server.h"

#include <httplib.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/fail.h"

namespace cohort {

namespace {

// Two threads serve all clients, so that slow ones hold up each other and not the training.
constexpr std::size_t kThreads = 2;
constexpr time_t kClientSeconds = 2;

// The library's own options would let two programs share a port, so that each would get some of the requests.
void set_options(int socket) {
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

}  // namespace

HttpServer::HttpServer(const std::string& address, int port, const Answers& answers)
    : server_(std::make_unique<httplib::Server>()) {
  server_->new_task_queue = [] { return std::make_unique<httplib::ThreadPool>(kThreads).release(); };
  server_->set_socket_options(set_options);
  server_->set_read_timeout(kClientSeconds);
  server_->set_write_timeout(kClientSeconds);
  server_->set_keep_alive_max_count(1);
  server_->set_payload_max_length(0);
  for (const auto& each : answers) {
    server_->Get(each.first, [answer = each.second](const httplib::Request& /*request*/, httplib::Response& response) {
      const HttpAnswer made = answer();
      response.status = made.status;
      response.set_header("Cache-Control", "no-store");
      response.set_content(made.body, made.type.c_str());
    });
  }
  errno = 0;
  port_ = port == 0 ? server_->bind_to_any_port(address) : server_->bind_to_port(address, port) ? port : -1;
  if (port_ < 0) {
    fail<Unavailable>("[metrics] cannot listen on ", address, ":", port, ": ",
                      errno == 0 ? "no such address" : std::strerror(errno));
  }
  thread_ = std::thread([this] { server_->listen_after_bind(); });
  while (!server_->is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

HttpServer::~HttpServer() {
  server_->stop();
  thread_.join();
}

}  // namespace cohort
