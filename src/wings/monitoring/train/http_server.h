// HttpServer: answers GET for a few paths.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

namespace httplib {
class Server;
}  // namespace httplib

namespace cohort {

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

class HttpServer {
 public:
  using Answers = std::map<std::string, std::function<HttpAnswer()>>;  // by paths, as "/healthz"

  // Listens until it is destroyed. The functions are called by threads of the server. Unavailable: the port is taken,
  // or the address is not this machine's.
  HttpServer(const std::string& address, int port, const Answers& answers);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  // Waits for requests that are being answered, a few seconds at most.
  ~HttpServer();

  int port() const { return port_; }

 private:
  std::unique_ptr<httplib::Server> server_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace cohort
