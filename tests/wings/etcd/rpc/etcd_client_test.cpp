// The client, held to real etcd processes and to etcdctl.
#include "wings/etcd/rpc/etcd_client.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "base/deadline.h"
#include "cohort/error.h"
#include "tests/support/certificates.h"
#include "tests/support/errors.h"
#include "tests/support/etcd.h"

namespace cohort::etcd_client_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::error_of;
using testing::etcdctl;
using testing::EtcdServers;
using ::testing::HasSubstr;

constexpr milliseconds kLimit = seconds(20);

EtcdAddress at(const EtcdServers& servers, const std::string& before = "etcd://") {
  return parse_etcd_address(before + servers.addresses());
}

etcd::TxnRequest put(const std::string& key, const std::string& value, int64_t lease = 0) {
  etcd::TxnRequest request;
  etcd::PutRequest& op = *request.add_success()->mutable_request_put();
  op.set_key(key);
  op.set_value(value);
  op.set_lease(lease);
  return request;
}

etcd::RangeRequest all_of(const std::string& prefix) {
  etcd::RangeRequest request;
  request.set_key(prefix);
  request.set_range_end(end_of_prefix(prefix));
  return request;
}

std::vector<std::string> keys_of(EtcdClient& client, const std::string& prefix) {
  std::vector<std::string> keys;
  const etcd::RangeResponse range = client.range(all_of(prefix), kLimit);
  for (const etcd::KeyValue& each : range.kvs()) keys.push_back(each.key());
  return keys;
}

class EtcdClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!EtcdServers::missing().empty()) GTEST_SKIP() << EtcdServers::missing();
  }
};

TEST_F(EtcdClientTest, ReadsAndWritesAsEtcdctlDoes) {
  const EtcdServers servers(1);
  EtcdClient client(at(servers), {});
  EXPECT_TRUE(client.transact(put("a/1", "one"), kLimit).succeeded());
  if (testing::program_path("etcdctl").empty()) GTEST_SKIP() << "etcdctl is not here: apt-get install etcd-client";
  EXPECT_EQ(etcdctl(servers.address(0), "get a/1 --print-value-only"), "one\n");
  EXPECT_EQ(etcdctl(servers.address(0), "put a/2 two"), "OK\n");
  const etcd::RangeResponse range = client.range(all_of("a/"), kLimit);
  ASSERT_EQ(range.kvs_size(), 2);
  EXPECT_EQ(range.kvs(1).value(), "two");
  EXPECT_EQ(range.kvs(1).create_revision(), range.header().revision());
  // A transaction whose comparison does not hold takes the other branch.
  etcd::TxnRequest swap = put("a/1", "new");
  etcd::Compare& compare = *swap.add_compare();
  compare.set_target(etcd::Compare::CREATE);
  compare.set_key("a/1");
  compare.set_create_revision(range.kvs(1).create_revision());
  swap.add_failure()->mutable_request_range()->set_key("a/1");
  const etcd::TxnResponse swapped = client.transact(swap, kLimit);
  EXPECT_FALSE(swapped.succeeded());
  EXPECT_EQ(swapped.responses(0).response_range().kvs(0).value(), "one");
}

TEST_F(EtcdClientTest, ALeaseEndsWithItsKeysWhenNobodyRenewsIt) {
  const EtcdServers servers(1);
  EtcdClient client(at(servers), {});
  const int64_t lease = client.grant(2, kLimit);
  ASSERT_NE(lease, 0);
  client.transact(put("leased", "x", lease), kLimit);
  for (int i = 0; i < 4; ++i) {  // for longer than its 2 s
    std::this_thread::sleep_for(seconds(1));
    client.keep_alive(lease, kLimit);
  }
  EXPECT_THAT(keys_of(client, "leased"), ElementsAre("leased"));
  const Deadline deadline(seconds(20));
  while (!keys_of(client, "leased").empty() && !deadline.passed()) std::this_thread::sleep_for(milliseconds(50));
  EXPECT_THAT(keys_of(client, "leased"), ElementsAre());
  EXPECT_THAT(error_of<NotFound>([&] { client.keep_alive(lease, kLimit); }), HasSubstr("the lease has ended"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { (void)client.grant(1, kLimit); }), HasSubstr("leases of 2 s or more"));
}

TEST_F(EtcdClientTest, AWatchSeesWhatOthersDoFromARevisionOn) {
  const EtcdServers servers(1);
  EtcdClient client(at(servers), {});
  const int64_t before = client.transact(put("w/1", "one"), kLimit).header().revision();
  EtcdClient other(at(servers), {});
  std::mutex mutex;
  std::vector<std::string> seen;
  std::promise<void> all;
  auto watching = std::async(std::launch::async, [&] {
    etcd::WatchCreateRequest request;
    request.set_key("w/");
    request.set_range_end(end_of_prefix("w/"));
    request.set_start_revision(before);
    client.watch(request, [&](const etcd::WatchResponse& answer) {
      const std::lock_guard lock(mutex);
      for (const etcd::Event& event : answer.events()) {
        seen.push_back((event.type() == etcd::Event::PUT ? "+" : "-") + event.kv().key());
        if (seen.size() == 3) all.set_value();
      }
    });
  });
  other.transact(put("w/2", "two"), kLimit);
  etcd::TxnRequest remove;
  remove.add_success()->mutable_request_delete_range()->set_key("w/1");
  other.transact(remove, kLimit);
  ASSERT_EQ(all.get_future().wait_for(seconds(30)), std::future_status::ready);
  client.close();
  EXPECT_THAT(error_of<Cancelled>([&] { watching.get(); }), HasSubstr("given up"));
  EXPECT_THAT(seen, ElementsAre("+w/1", "+w/2", "-w/1"));
  EXPECT_THAT(error_of<Cancelled>([&] { (void)client.range(all_of("w/"), kLimit); }), HasSubstr("given up"));
}

TEST_F(EtcdClientTest, CallsGoToAnotherMemberWhenOneIsKilledOrStopped) {
  EtcdServers servers(3);
  EtcdClient client(at(servers), {});
  client.transact(put("k", "0"), kLimit);
  // The first member is the one that the client speaks to.
  for (const int signal : {SIGKILL, SIGSTOP}) {
    SCOPED_TRACE(signal);
    const int member = signal == SIGKILL ? 0 : 1;
    if (signal == SIGKILL) {
      servers.kill(member);
    } else {
      servers.send(member, signal);
    }
    const std::string value = std::to_string(signal);
    EXPECT_TRUE(client.transact(put("k", value), kLimit).succeeded());
    EXPECT_EQ(client.range(all_of("k"), kLimit).kvs(0).value(), value);
    if (signal == SIGKILL) servers.start(member);
    std::this_thread::sleep_for(seconds(2));  // so that two of three are there again
  }
}

TEST_F(EtcdClientTest, NobodyThereIsUnavailableInTime) {
  EtcdClient client(parse_etcd_address("etcd://127.0.0.1:1,127.0.0.1:2"), {});
  const auto begin = Deadline::Clock::now();
  EXPECT_THAT(error_of<Unavailable>([&] { (void)client.range(all_of("k"), milliseconds(500)); }),
              HasSubstr("etcd at 127.0.0.1:1, 127.0.0.1:2 cannot be reached"));
  EXPECT_LT(Deadline::Clock::now() - begin, seconds(20));
}

// A member that ends all calls with an error of its own, for which etcd has no code. Real ones do so now and then when
// their leader is lost: "context deadline exceeded".
class LostMember final : public grpc::CallbackGenericService {
 public:
  LostMember() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* /*context*/) override {
    class Ending final : public grpc::ServerGenericBidiReactor {
     public:
      Ending() { Finish(grpc::Status(grpc::StatusCode::UNKNOWN, "context deadline exceeded")); }
      void OnDone() override { delete this; }
    };
    return new Ending;
  }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(EtcdClientTest, AMemberThatHasLostItsLeaderIsLeft) {
  const LostMember lost;
  EtcdClient alone(parse_etcd_address("etcd://" + lost.address()), {});
  EXPECT_THAT(error_of<Unavailable>([&] { alone.keep_alive(1, milliseconds(300)); }),
              HasSubstr("failed in /etcdserverpb.Lease/LeaseKeepAlive: context deadline exceeded"));
  const EtcdServers servers(1);
  EtcdClient client(parse_etcd_address("etcd://" + lost.address() + "," + servers.addresses()), {});
  const int64_t lease = client.grant(60, kLimit);
  client.keep_alive(lease, kLimit);
}

TEST_F(EtcdClientTest, AskedForAUserItNeedsThePassword) {
  const EtcdServers servers(1);
  EtcdClient waits(at(servers), {});
  waits.transact(put("open", "x"), kLimit);
  if (testing::program_path("etcdctl").empty()) GTEST_SKIP() << "etcdctl is not here: apt-get install etcd-client";
  const std::string address = servers.address(0);
  EXPECT_THAT(etcdctl(address, "user add root:word"), HasSubstr("User root created"));
  EXPECT_THAT(etcdctl(address, "user grant-role root root"), HasSubstr("is granted to user root"));
  EXPECT_THAT(etcdctl(address, "auth enable"), HasSubstr("Authentication Enabled"));
  EtcdClient knows(at(servers, "etcd://root:word@"), {});
  EXPECT_TRUE(knows.transact(put("k", "v"), kLimit).succeeded());
  const int64_t lease = knows.grant(5, kLimit);
  knows.keep_alive(lease, kLimit);
  EtcdClient wrong(at(servers, "etcd://root:other@"), {});
  EXPECT_THAT(error_of<InvalidArgument>([&] { wrong.transact(put("k", "w"), kLimit); }),
              HasSubstr("authentication failed"));
  EtcdClient nobody(at(servers), {});
  EXPECT_THAT(error_of<InvalidArgument>([&] { nobody.transact(put("k", "w"), kLimit); }),
              HasSubstr("user name is empty"));
}

TEST_F(EtcdClientTest, SpeaksTlsToWhomItsAuthorityKnows) {
  const testing::TemporaryFolder folder;
  const testing::Certificate own(folder, "localhost");
  const testing::Certificate stranger(folder, "stranger");
  const EtcdServers servers(1,
                            {"--cert-file=" + own.certificate, "--key-file=" + own.key, "--client-cert-auth=true",
                             "--trusted-ca-file=" + own.certificate},
                            "https");
  const SecurityOptions security{
      .ca_file = own.certificate, .certificate_file = own.certificate, .key_file = own.key, .server_name = "localhost"};
  EtcdClient client(at(servers, "etcds://"), security);
  EXPECT_TRUE(client.transact(put("k", "v"), kLimit).succeeded());
  SecurityOptions other = security;
  other.certificate_file = stranger.certificate;
  other.key_file = stranger.key;
  EtcdClient unknown(at(servers, "etcds://"), other);
  EXPECT_THAT(error_of<Unavailable>([&] { unknown.transact(put("k", "w"), milliseconds(1000)); }),
              HasSubstr("cannot be reached"));
}

TEST(EtcdClient, WhatCannotBeProtectedIsRefused) {
  EXPECT_THAT(error_of<InvalidArgument>([] { EtcdClient(parse_etcd_address("etcds://127.0.0.1:1"), {}); }),
              HasSubstr("no certificates"));
  EXPECT_THAT(error_of<FailedPrecondition>([] { EtcdClient(parse_etcd_address("etcd://192.0.2.1:1"), {}); }),
              HasSubstr("192.0.2.1:1 is on another machine, and etcd:// is not encrypted"));
  EXPECT_EQ(EtcdClient(parse_etcd_address("etcd://192.0.2.1:1"), {}, /*allow_insecure=*/true).name(),
            "etcd at 192.0.2.1:1");
}

TEST(EtcdClient, TheEndOfAPrefixIsBehindAllItsKeys) {
  EXPECT_EQ(end_of_prefix("a/"), "a0");
  EXPECT_EQ(end_of_prefix("a\xff"), "b");
  EXPECT_EQ(end_of_prefix("\xff"), std::string(1, '\0'));
}

}  // namespace
}  // namespace cohort::etcd_client_test
