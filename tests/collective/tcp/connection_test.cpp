#include "collective/tcp/connection.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/errors.h"

namespace cohort::connection_test {
namespace {

using std::chrono::seconds;

// Serves a connection as the transport does, until it is destroyed.
class Served {
 public:
  explicit Served(int socket)
      : connection_({.socket = socket}, "rank 7"), server_([this](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            const short events = connection_.wanted_events();
            pollfd place{.fd = events == 0 ? -1 : connection_.socket(), .events = events, .revents = 0};
            ::poll(&place, 1, 1);
            if (place.revents != 0) connection_.serve(place.revents);
          }
        }) {}

  Connection& operator*() { return connection_; }

 private:
  Connection connection_;
  std::jthread server_;
};

std::array<int, 2> socket_pair() {
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) throw std::runtime_error("socketpair");
  return sockets;
}

// Returns what a connection writes for this message.
std::string written(const std::string& message, uint64_t slot) {
  const auto [mine, its] = socket_pair();
  std::string said;
  {
    Served sender(its);
    (void)(*sender).send(slot, std::as_bytes(std::span(message)));
    std::array<char, 256> part{};
    for (std::size_t size = 16 + message.size() + 4; said.size() < size;) {
      const ssize_t count = ::read(mine, part.data(), part.size());
      if (count <= 0) break;
      said.append(part.data(), static_cast<std::size_t>(count));
    }
  }
  ::close(mine);
  return said;
}

std::string received(const std::string& said, std::size_t size, uint64_t slot) {
  const auto [mine, its] = socket_pair();
  std::string message(size, '\0');
  Served receiver(its);
  auto transfer = (*receiver).receive(slot, std::as_writable_bytes(std::span(message)));
  if (::write(mine, said.data(), said.size()) != static_cast<ssize_t>(said.size())) throw std::runtime_error("write");
  ::shutdown(mine, SHUT_WR);
  try {
    (*receiver).wait(*transfer, Deadline(seconds(10)));
  } catch (...) {
    (*receiver).give_up(transfer);
    ::close(mine);
    throw;
  }
  ::close(mine);
  return message;
}

TEST(Connection, MessagesOfAllSizesComeThrough) {
  const auto [one, other] = socket_pair();
  Served sender(one);
  Served receiver(other);
  uint64_t slot = 0;
  for (const std::size_t size : {0, 1, 100, 16 << 10, (16 << 10) + 1, 3 << 20}) {
    for (const bool asked_early : {true, false}) {
      std::vector<std::byte> sent(size);
      for (std::size_t i = 0; i < size; ++i) sent[i] = static_cast<std::byte>(i * 7 + slot);
      std::vector<std::byte> came(size);
      Connection::TransferPtr in;
      if (asked_early) in = (*receiver).receive(slot, came);
      const auto out = (*sender).send(slot, sent);
      if (!asked_early) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        in = (*receiver).receive(slot, came);
      }
      (*receiver).wait(*in, Deadline(seconds(20)));
      (*sender).wait(*out, Deadline(seconds(20)));
      EXPECT_EQ(sent, came) << size;
      ++slot;
    }
  }
}

TEST(Connection, AnyBitThatIsChangedOnTheWayEndsIt) {
  const std::string message = "gradients";
  const std::string said = written(message, 3);
  ASSERT_EQ(said.size(), 16 + message.size() + 4);
  EXPECT_EQ(received(said, message.size(), 3), message);
  for (std::size_t bit = 8 * 16; bit < 8 * said.size(); ++bit) {
    std::string changed = said;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    testing::expect_error<std::runtime_error>([&] { (void)received(changed, message.size(), 3); },
                                              "rank 7: a message of 9 bytes was changed on the way: its checksum is ");
  }
  for (std::size_t bit = 0; bit < 8 * 16; ++bit) {  // the slot or the size: nothing that was asked for comes
    std::string changed = said;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_THROW((void)received(changed, message.size(), 3), std::runtime_error) << bit;
  }
}

}  // namespace
}  // namespace cohort::connection_test
