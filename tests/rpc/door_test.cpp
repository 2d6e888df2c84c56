#include "rpc/door.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <condition_variable>
#include <vector>

#include "cohort/error.h"
#include "tests/support/descriptors.h"
#include "tests/support/errors.h"
#include "tests/support/secret.h"

namespace cohort::door_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::expect_error;

constexpr const char* kSecret = "0123456789abcdef";

// A door that answers each byte with the next one.
class Answering {
 public:
  explicit Answering(const DoorOptions& options = {})
      : door_("127.0.0.1", TlsContext(testing::identity_of(kSecret)), options,
              [this](TlsSocket end, const Deadline& deadline) {
                ++entered_;  // before the answer, after which the test counts
                std::byte byte{};
                end.read({&byte, 1}, deadline);
                byte = std::byte(std::to_integer<int>(byte) + 1);
                end.write({&byte, 1}, deadline);
              }) {}

  const Door& door() const { return door_; }
  int entered() const { return entered_; }

  // Returns what the door says to 41.
  int ask(const std::string& secret, milliseconds limit = seconds(20)) const {
    const Deadline deadline(limit);
    TlsSocket end =
        TlsSocket::dial(door_.address(), door_.address_length(), TlsContext(testing::identity_of(secret)), deadline);
    std::byte byte{41};
    end.write({&byte, 1}, deadline);
    end.read({&byte, 1}, deadline);
    return std::to_integer<int>(byte);
  }

 private:
  std::atomic<int> entered_ = 0;
  Door door_;
};

// A connection that proves nothing.
class Stranger {
 public:
  explicit Stranger(const Door& door) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval limit{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&door.address()), door.address_length()) == 0;
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  ~Stranger() { ::close(socket_); }

  bool connected() const { return connected_; }
  void say(const std::string& bytes) const { (void)::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // Waits until the door ends the connection; whether it did. What it says before that is TLS's refusal.
  bool is_sent_away() const {
    std::array<char, 256> bytes{};
    for (;;) {
      const ssize_t count = ::recv(socket_, bytes.data(), bytes.size(), 0);
      if (count > 0) continue;
      return count == 0 || errno == ECONNRESET;
    }
  }

 private:
  int socket_;
  bool connected_ = false;
};

TEST(Door, LetsInWhoKnowsTheSecretAndNobodyElse) {
  const Answering answering;
  EXPECT_EQ(answering.ask(kSecret), 42);
  expect_error<Unavailable>([&] { (void)answering.ask("0123456789abcdeg"); },
                            "[security] the other end proves nothing");
  for (const std::string& words :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), std::string(64, '\0'),
        std::string(4096, 'x')}) {
    const Stranger stranger(answering.door());
    stranger.say(words);
    EXPECT_TRUE(stranger.is_sent_away()) << words;
  }
  EXPECT_EQ(answering.ask(kSecret), 42);
  EXPECT_EQ(answering.entered(), 2);
}

TEST(Door, StrangersWhoSayNothingKeepNobodyWaiting) {
  const Answering answering({.patience = seconds(2), .most_waiting = 4});
  std::list<Stranger> strangers;
  for (int i = 0; i < 4; ++i) strangers.emplace_back(answering.door());
  const Stranger one_too_many(answering.door());
  EXPECT_TRUE(one_too_many.is_sent_away());
  for (const Stranger& stranger : strangers) EXPECT_TRUE(stranger.is_sent_away());
  EXPECT_EQ(answering.ask(kSecret), 42);
}

TEST(Door, ClosesAtOnceAlthoughSomebodyStandsThere) {
  auto answering = std::make_unique<Answering>(DoorOptions{.patience = std::chrono::hours(1)});
  const Stranger stranger(answering->door());
  std::this_thread::sleep_for(milliseconds(50));
  answering.reset();
  EXPECT_TRUE(stranger.is_sent_away());
}

TEST(Door, WaitsWithoutSpinningWhileThereAreNoDescriptors) {
  const Answering answering;
  EXPECT_EQ(answering.ask(kSecret), 42);
  {
    testing::NoDescriptors none;
    none.give_one();
    const Stranger stranger(answering.door());  // the last one, so that the door has none for it
    ASSERT_TRUE(stranger.connected());
    const double before = testing::processor_seconds();
    std::this_thread::sleep_for(milliseconds(500));
    EXPECT_LT(testing::processor_seconds() - before, 0.2) << "the door asks again and again";
  }
  EXPECT_EQ(answering.ask(kSecret), 42) << "the door is there again";
}

TEST(Door, SaysThatAHostIsNotOfThisMachine) {
  expect_error<Unavailable>(
      [] {
        const Door door("192.0.2.1", TlsContext(testing::identity_of(kSecret)), {}, [](TlsSocket, const Deadline&) {});
      },
      "[security] nothing can listen on 192.0.2.1");
  expect_error<InvalidArgument>([] { (void)TlsContext(TlsPem{.ca = "x", .certificate = "y", .key = "z"}); },
                                "the certificate cannot be used");
}

}  // namespace
}  // namespace cohort::door_test
