#include "rpc/server.h"

#include <gmock/gmock.h>
#include <grpc/grpc.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "cluster/free_port.h"
#include "cohort/error.h"
#include "rpc/channel.h"
#include "rpc/frame.h"
#include "tests/support/certificates.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::rpc_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::expect_error;

grpc::ByteBuffer frame_of(const torch::Tensor& tensor) {
  return make_frame(rpc::TensorHead(), {&tensor, 1});
}

torch::Tensor tensor_in(const grpc::ByteBuffer& frame) {
  rpc::TensorHead message;
  return FrameReader(frame, message).take();
}

std::string local(int port) {
  return "127.0.0.1:" + std::to_string(port);
}

// Doubles what comes; "wait" is kept until release().
class Doubler {
 public:
  explicit Doubler(const std::string& address = "127.0.0.1:0")
      : server_(address, {}, [this](const std::string& method, const std::shared_ptr<RpcCall>& call) {
          if (method == "/fail") throw NotFound("[test] it is not there");
          if (method == "/bug") throw std::runtime_error("a bug");
          if (method == "/forget") return;
          if (method == "/wait") {
            const std::lock_guard lock(mutex_);
            kept_.push_back(call);
            came_.notify_all();
            return;
          }
          call->reply(frame_of(tensor_in(call->request()) * 2));
        }) {}
  Doubler(const Doubler&) = delete;
  Doubler& operator=(const Doubler&) = delete;
  ~Doubler() { kept_.clear(); }

  int port() const { return server_.port(); }
  std::shared_ptr<RpcCall> kept() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(came_.wait_for(lock, seconds(10), [&] { return !kept_.empty(); }));
    return kept_.back();
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::shared_ptr<RpcCall>> kept_;
  RpcServer server_;
};

TEST(Rpc, ManyCallsAtOnceEachGetTheirOwnAnswer) {
  const Doubler server;
  RpcClient client("the server", local(server.port()));
  std::vector<std::future<grpc::ByteBuffer>> answers;
  for (int i = 0; i < 200; ++i) {
    answers.push_back(client.call("/double", frame_of(torch::full({100}, double(i))), seconds(10)));
  }
  for (int i = 0; i < 200; ++i) {
    EXPECT_TRUE(torch::equal(tensor_in(answers[static_cast<std::size_t>(i)].get()), torch::full({100}, 2.0 * i)));
  }
}

TEST(Rpc, ErrorsArriveWithTheirKindAndMessage) {
  const Doubler server;
  RpcClient client("/job:ps/task:0", local(server.port()));
  const auto call = [&](const std::string& method, grpc::ByteBuffer frame = frame_of(torch::zeros({1})),
                        milliseconds limit = seconds(10)) { (void)client.call(method, std::move(frame), limit).get(); };
  expect_error<NotFound>([&] { call("/fail"); }, "[test] it is not there");
  expect_error<Internal>([&] { call("/bug"); }, "a bug");
  expect_error<Internal>([&] { call("/forget"); }, "the call was not answered");
  const grpc::Slice nothing("");
  expect_error<DataLoss>([&] { call("/double", grpc::ByteBuffer(&nothing, 1)); }, "is damaged");
  expect_error<DeadlineExceeded>([&] { call("/wait", frame_of(torch::zeros({1})), milliseconds(50)); },
                                 "/job:ps/task:0 did not answer in time");
  EXPECT_TRUE(torch::equal(tensor_in(client.call("/double", frame_of(torch::ones({1})), seconds(10)).get()),
                           torch::full({1}, 2.0)))
      << "the server is unharmed";
}

TEST(Rpc, WhatIsTooLongIsRefused) {
  const Doubler server;
  RpcClient client("the server", local(server.port()));
  const torch::Tensor large = torch::zeros({kLongestFrame / 4 + 1});
  expect_error<InvalidArgument>([&] { (void)client.call("/double", frame_of(large), seconds(30)).get(); },
                                "the message is too long");
  EXPECT_EQ(tensor_in(client.call("/double", frame_of(torch::ones({1})), seconds(10)).get()).item<float>(), 2.0F);
}

TEST(Rpc, AServerThatIsNotThereOrGoesIsUnavailableAndComesBack) {
  auto server = std::make_unique<Doubler>();
  const int port = server->port();
  RpcClient client("/job:ps/task:1", local(port));
  const auto once = [&] {
    return tensor_in(client.call("/double", frame_of(torch::ones({1})), seconds(10)).get()).item<float>();
  };
  EXPECT_EQ(once(), 2.0F);
  server.reset();
  expect_error<Unavailable>([&] { (void)once(); }, "/job:ps/task:1 cannot be reached");
  const Doubler again(local(port));
  for (int i = 0;; ++i) {
    try {
      EXPECT_EQ(once(), 2.0F);
      break;
    } catch (const Unavailable&) {
      ASSERT_LT(i, 100);
      std::this_thread::sleep_for(milliseconds(100));
    }
  }
}

TEST(Rpc, CallsAreAnsweredLaterAndGivenUp) {
  Doubler server;
  RpcClient client("the server", local(server.port()));
  auto answer = client.call("/wait", frame_of(torch::ones({1})), seconds(30));
  const std::shared_ptr<RpcCall> kept = server.kept();
  EXPECT_FALSE(kept->cancelled());
  EXPECT_EQ(answer.wait_for(milliseconds(20)), std::future_status::timeout);
  kept->reply(frame_of(torch::full({1}, 7.0)));
  EXPECT_EQ(tensor_in(answer.get()).item<float>(), 7.0F);
  kept->reply(frame_of(torch::zeros({1})));  // has no effect

  auto given_up = client.call("/wait", frame_of(torch::ones({1})), seconds(30));
  while (server.kept() == kept) std::this_thread::sleep_for(milliseconds(1));
  client.cancel_calls();
  expect_error<Cancelled>([&] { (void)given_up.get(); }, "the call of the server was given up");
  for (int i = 0; i < 20'000 && !server.kept()->cancelled(); ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(server.kept()->cancelled());
}

TEST(Rpc, AClosedClientCallsNoMore) {
  Doubler server;
  RpcClient client("the server", local(server.port()));
  auto under_way = client.call("/wait", frame_of(torch::ones({1})), seconds(30));
  (void)server.kept();
  client.close();
  expect_error<Cancelled>([&] { (void)under_way.get(); }, "the call of the server was given up");
  auto later = client.call("/wait", frame_of(torch::ones({1})), seconds(30));
  ASSERT_EQ(later.wait_for(seconds(10)), std::future_status::ready);
  expect_error<Cancelled>([&] { (void)later.get(); }, "the call of the server was given up");
}

TEST(Rpc, AClientMayWaitForAServerThatComesLate) {
  const int port = free_port("127.0.0.1");
  RpcClient client("the server", open_channel(local(port)), {.wait_for_ready = true});
  expect_error<DeadlineExceeded>(
      [&] { (void)client.call("/double", frame_of(torch::ones({1})), milliseconds(100)).get(); },
      "the server did not answer in time");
  auto answer = client.call("/double", frame_of(torch::ones({1})), seconds(20));
  const Doubler server(local(port));
  EXPECT_EQ(tensor_in(answer.get()).item<float>(), 2.0F);
}

TEST(Rpc, ALocalChannelNeedsNoNetworkAndNoCertificate) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder / "secret", "0123456789abcdef");
  RpcServer server("127.0.0.1:0", {.security = {.secret_file = folder / "secret"}},
                   [](const std::string&, const std::shared_ptr<RpcCall>& call) { call->reply(call->request()); });
  RpcClient client("this very task", server.local_channel());
  EXPECT_EQ(tensor_in(client.call("/same", frame_of(torch::ones({1})), seconds(10)).get()).item<float>(), 1.0F);
}

// gRPC destroys connections on its own threads. They must not do so while the program ends.
TEST(Rpc, GrpcHasShutDownWhenItsLastUserIsGone) {
  for (int i = 0; i < 300; ++i) {
    std::optional<Doubler> server(std::in_place);
    std::optional<RpcClient> client(std::in_place, "the server", local(server->port()));
    (void)client->call("/double", frame_of(torch::zeros({1})), seconds(60)).get();
    if (i % 2 == 0) client.reset();
    server.reset();
    client.reset();
    ASSERT_FALSE(grpc_is_initialized()) << "after " << i << " times";
  }
}

TEST(Rpc, QuickMethodsAreAnsweredWhileAllThreadsAreBusy) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::atomic<int> busy = 0;
  const RpcServer server("127.0.0.1:0", {.threads = 1, .quick = {"/quick"}},
                         [&](const std::string& method, const std::shared_ptr<RpcCall>& call) {
                           if (method == "/slow") {
                             ++busy;
                             released.wait();
                           }
                           call->reply(call->request());
                         });
  RpcClient client("the server", local(server.port()));
  auto slow = client.call("/slow", frame_of(torch::ones({1})), seconds(30));
  auto behind = client.call("/slow", frame_of(torch::ones({1})), seconds(30));
  while (busy == 0) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(tensor_in(client.call("/quick", frame_of(torch::ones({1})), seconds(10)).get()).item<float>(), 1.0F);
  EXPECT_EQ(behind.wait_for(milliseconds(20)), std::future_status::timeout);
  release.set_value();
  (void)slow.get();
  (void)behind.get();
}

// Calls with these options; what came of it.
torch::Tensor call_with(const SecurityOptions& security, int port) {
  RpcClient client("the server", local(port), security);
  return tensor_in(client.call("/double", frame_of(torch::ones({1})), seconds(10)).get());
}

TEST(Rpc, OnlyWhoHasTheRightCertificateIsHeard) {
  const testing::TemporaryFolder folder;
  const testing::Certificate ours(folder, "ours");
  const testing::Certificate stranger(folder, "stranger");
  const SecurityOptions good{
      .ca_file = ours.certificate, .certificate_file = ours.certificate, .key_file = ours.key, .server_name = "ours"};
  const RpcServer server("127.0.0.1:0", {.security = good},
                         [](const std::string&, const std::shared_ptr<RpcCall>& call) {
                           call->reply(frame_of(tensor_in(call->request()) * 2));
                         });
  EXPECT_EQ(call_with(good, server.port()).item<float>(), 2.0F);
  expect_error<Unavailable>([&] { (void)call_with({}, server.port()); }, "the server cannot be reached");
  SecurityOptions wrong = good;
  wrong.certificate_file = stranger.certificate;
  wrong.key_file = stranger.key;
  expect_error<Unavailable>([&] { (void)call_with(wrong, server.port()); }, "the server cannot be reached");
  wrong = good;
  wrong.ca_file = stranger.certificate;
  expect_error<Unavailable>([&] { (void)call_with(wrong, server.port()); }, "the server cannot be reached");
  EXPECT_EQ(call_with(good, server.port()).item<float>(), 2.0F) << "the server is unharmed";
}

TEST(Rpc, OnlyWhoHasTheSecretIsHeard) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder / "secret", " 0123456789abcdef\n");
  testing::write_file(folder / "same", "0123456789abcdef");
  testing::write_file(folder / "other", "0123456789abcdeg");
  testing::write_file(folder / "short", "0123456789\n");
  const auto with = [&](const std::string& file) { return SecurityOptions{.secret_file = folder / file}; };
  const RpcServer server("0.0.0.0:0", {.security = with("secret")},
                         [](const std::string&, const std::shared_ptr<RpcCall>& call) {
                           call->reply(frame_of(tensor_in(call->request()) * 2));
                         });
  EXPECT_EQ(call_with(with("same"), server.port()).item<float>(), 2.0F);
  expect_error<Unavailable>([&] { (void)call_with(with("other"), server.port()); }, "the server cannot be reached");
  expect_error<Unavailable>([&] { (void)call_with({}, server.port()); }, "the server cannot be reached");
  expect_error<InvalidArgument>([&] { (void)call_with(with("short"), 1); }, "has 10 bytes, wanted at least 16");
  expect_error<InvalidArgument>([&] { (void)call_with(with("none"), 1); }, "cannot be read");
  SecurityOptions both = with("same");
  both.ca_file = "ca";
  expect_error<InvalidArgument>([&] { (void)call_with(both, 1); }, "there are certificates and a secret_file");
  EXPECT_EQ(call_with(with("same"), server.port()).item<float>(), 2.0F);
}

TEST(Rpc, WithoutSecurityItListensOnThisMachineOnly) {
  expect_error<FailedPrecondition>([] { const RpcServer server("0.0.0.0:0", {}, [](auto&&...) {}); },
                                   "0.0.0.0:0 can be reached from other machines");
  const RpcServer asked_for("0.0.0.0:0", {.allow_insecure = true}, [](auto&&...) {});
  EXPECT_GT(asked_for.port(), 0);
  expect_error<Unavailable>([&] { const RpcServer second(local(asked_for.port()), {}, [](auto&&...) {}); },
                            "cannot listen on 127.0.0.1:");
  expect_error<InvalidArgument>([] { const RpcServer server("nowhere", {}, [](auto&&...) {}); }, "is no host:port");
}

}  // namespace
}  // namespace cohort::rpc_test
