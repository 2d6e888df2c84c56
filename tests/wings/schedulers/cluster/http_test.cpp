#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "cluster/free_port.h"
#include "cohort/cluster/scheduler_resolvers.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "wings/schedulers/cluster/http.h"

namespace cohort::http_test {
namespace {

using testing::expect_error;

// Takes one connection on loopback, reads until the end of the headers, answers and closes.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(socket_, 1), 0);
    EXPECT_EQ(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, answer = std::move(answer)] { serve(answer); });
  }
  ~OneAnswer() {
    ::shutdown(socket_, SHUT_RDWR);  // a client that was in a hurry may not have come
    thread_.join();
    ::close(socket_);
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/path"; }
  const std::string& request() {
    if (thread_.joinable()) thread_.join();
    thread_ = std::thread([] {});
    return request_;
  }

 private:
  void serve(const std::string& answer) {
    const int peer = ::accept(socket_, nullptr, nullptr);
    if (peer < 0) return;
    char buffer[4096];
    while (answer.empty() || request_.find("\r\n\r\n") == std::string::npos) {  // no answer: until the client leaves
      const ssize_t count = ::read(peer, buffer, sizeof(buffer));
      if (count <= 0) break;
      request_.append(buffer, static_cast<std::size_t>(count));
    }
    if (!answer.empty()) {
      EXPECT_EQ(::send(peer, answer.data(), answer.size(), MSG_NOSIGNAL), static_cast<ssize_t>(answer.size()));
    }
    ::close(peer);
  }

  int socket_;
  int port_ = 0;
  std::string request_;
  std::thread thread_;
};

TEST(Http, FetchesWithHeaders) {
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
  EXPECT_EQ(http_fetch()({.url = server.url(), .headers = {"Authorization: Bearer t"}}), "hello");
  EXPECT_EQ(server.request().rfind("GET /path HTTP/1.1", 0), 0U);
  EXPECT_NE(server.request().find("Authorization: Bearer t"), std::string::npos);
}

TEST(Http, Posts) {
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(http_fetch()({.url = server.url(), .body = "{}"}), "");
  EXPECT_EQ(server.request().rfind("POST /path HTTP/1.1", 0), 0U);
}

TEST(Http, FailuresNameTheUrl) {
  {
    OneAnswer server("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    expect_error<Unavailable>([&] { http_fetch()({.url = server.url()}); },
                              server.url() + ": answered 403, wanted 200: no");
  }
  {
    OneAnswer server("");
    expect_error<Unavailable>([&] { http_fetch()({.url = server.url(), .timeout = std::chrono::milliseconds(100)}); },
                              server.url());
  }
  const std::string nobody = "http://127.0.0.1:" + std::to_string(free_port("127.0.0.1")) + "/";
  expect_error<Unavailable>([&] { http_fetch()({.url = nobody}); }, nobody);
  expect_error<Unavailable>([] { http_fetch()({.url = "file:///etc/hostname"}); }, "file:///etc/hostname");
}

TEST(Http, EscapesForUrls) {
  EXPECT_EQ(url_escaped("a=b, c/d"), "a%3Db%2C%20c%2Fd");
}

}  // namespace
}  // namespace cohort::http_test
