#include "rpc/local_socket.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "cohort/error.h"
#include "rpc/calls.h"
#include "rpc/own_folder.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/secret.h"

namespace cohort::local_socket_test {
namespace {

using std::chrono::seconds;
using testing::expect_error;
using testing::identity_of;

constexpr const char* kSecret = "0123456789abcdef";

// A folder for the sockets of a test.
class LocalSockets : public ::testing::Test {
 protected:
  LocalSockets() {
    ::setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1);
    testing::write_file(folder_ / "secret", kSecret);
    testing::write_file(folder_ / "other", "fedcba9876543210");
  }
  ~LocalSockets() override { ::unsetenv("XDG_RUNTIME_DIR"); }

  SecurityOptions security(const std::string& secret = "secret") const { return {.secret_file = folder_ / secret}; }
  std::unique_ptr<RpcServer> serve(const std::string& address = "127.0.0.1:0") const {
    return std::make_unique<RpcServer>(
        address, RpcServerOptions{.name = "a server", .security = security()},
        [](const std::string&, const std::shared_ptr<RpcCall>& call) { call->reply(call->request()); });
  }
  static std::string address_of(const RpcServer& server) { return "127.0.0.1:" + std::to_string(server.port()); }
  std::string file_of(const RpcServer& server) const { return local_socket(address_of(server), identity_of(kSecret)); }
  static void call(RpcClient& client) { ask(client, "/same", rpc::Empty(), seconds(10)); }
  std::size_t sockets() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(own_folder())) count += entry.is_socket();
    return count;
  }

  testing::TemporaryFolder folder_;
};

// Counts the TCP connections that this process has to the port and that are open.
int connections_to(int port) {
  std::ifstream table("/proc/net/tcp");
  std::string line;
  int count = 0;
  char wanted[32];
  std::snprintf(wanted, sizeof(wanted), "0100007F:%04X 01", port);
  while (std::getline(table, line)) count += line.find(wanted) != std::string::npos;
  return count;
}

TEST_F(LocalSockets, TasksOfOneMachineAndUserDoNotUseTheNetwork) {
  const auto server = serve();
  EXPECT_TRUE(listens_at(file_of(*server)));
  RpcClient client("the server", address_of(*server), security());
  call(client);
  EXPECT_EQ(connections_to(server->port()), 0);
}

TEST_F(LocalSockets, NobodyElseMayEnterTheirFolder) {
  const auto server = serve();
  struct stat found {};
  ASSERT_EQ(::stat(own_folder().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0700U);
  EXPECT_EQ(found.st_uid, ::getuid());
  if (::getuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  std::filesystem::permissions(folder_.path(), std::filesystem::perms::all);
  const std::string file = file_of(*server);  // before the fork, which leaves locks of other threads as they are
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::setuid(65534) == 0 && !listens_at(file) ? 0 : 1);
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "a stranger of this machine can connect";
}

TEST_F(LocalSockets, AFolderThatOthersMayEnterIsNotUsed) {
  std::filesystem::permissions(own_folder(), std::filesystem::perms::all);
  expect_error<FailedPrecondition>([] { (void)own_folder(); }, "is not this user's alone");
  EXPECT_EQ(local_socket("127.0.0.1:1", identity_of(kSecret)), "");
  const auto server = serve();
  RpcClient client("the server", address_of(*server), security());
  call(client);
  EXPECT_GT(connections_to(server->port()), 0) << "it goes by TLS instead";
}

TEST_F(LocalSockets, ATaskOfAnotherJobFindsNoneAndIsRefused) {
  const auto server = serve();
  RpcClient stranger("the server", address_of(*server), security("other"));
  expect_error<Unavailable>([&] { call(stranger); }, "the server cannot be reached");
  RpcClient nobody("the server", address_of(*server));
  expect_error<Unavailable>([&] { call(nobody); }, "the server cannot be reached");
}

TEST_F(LocalSockets, OneWhoseServerWasKilledIsPassedBy) {
  const auto server = serve();
  const std::string file = file_of(*server);
  std::filesystem::remove(file);
  {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    file.copy(address.sun_path, sizeof(address.sun_path) - 1);
    const int left = ::socket(AF_UNIX, SOCK_STREAM, 0);
    ASSERT_EQ(::bind(left, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    ::close(left);
  }
  ASSERT_TRUE(std::filesystem::is_socket(file));
  EXPECT_FALSE(listens_at(file));
  RpcClient client("the server", address_of(*server), security());
  call(client);
  EXPECT_GT(connections_to(server->port()), 0);
}

TEST_F(LocalSockets, ASecondServerAtAnAddressTakesNothing) {
  auto server = serve();
  const std::string address = address_of(*server);
  RpcClient client("the server", address, security());
  expect_error<Unavailable>([&] { (void)serve(address); }, "cannot listen on");
  call(client);
  EXPECT_EQ(sockets(), 1U);
  server.reset();
  EXPECT_EQ(sockets(), 0U) << "nothing is left behind";
  expect_error<Unavailable>([&] { call(client); }, "cannot be reached");
  server = serve(address);
  const Deadline deadline(seconds(10));
  while (true) {
    try {
      call(client);
      break;
    } catch (const Unavailable&) {
      ASSERT_FALSE(deadline.passed()) << "the next server at the address is not found";
    }
  }
}

TEST_F(LocalSockets, ThoseOfKilledServersAreRemoved) {
  const std::string left = own_folder() + "/rpc-left";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  left.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ::close(socket);
  const auto young = serve();
  EXPECT_TRUE(std::filesystem::exists(left)) << "its server may not listen yet";
  std::filesystem::last_write_time(left, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  const auto old = serve();
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(listens_at(file_of(*young)));
}

TEST_F(LocalSockets, ALongNameOfTheFolderLeavesTheNetwork) {
  const auto folder = folder_ / std::string(90, 'x');
  std::filesystem::create_directory(folder);
  ::setenv("XDG_RUNTIME_DIR", folder.c_str(), 1);
  EXPECT_EQ(local_socket("127.0.0.1:1", identity_of(kSecret)), "");
  const auto server = serve();
  RpcClient client("the server", address_of(*server), security());
  call(client);
}

}  // namespace
}  // namespace cohort::local_socket_test
