// These tests are about what a peer may send that is no peer of ours: it is refused, and what is served stays as it
// was.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/error.h"
#include "rpc/calls.h"
#include "tests/support/errors.h"
#include "tests/wings/parameter_server/servers.h"
#include "wings/parameter_server/client/saved_variables.h"

namespace cohort::untrusted_test {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the servers of servers.h

// Whoever reaches the port can send a shard's state: nothing of it may reach beyond the shard, or be served in part.
TEST_F(Servers, AStateThatDoesNotFitIsRefused) {
  const auto table = static_cast<uint32_t>(catalog_->shards_of(1).first);  // [50, 8], with one slot
  const auto install = [&](proto::InstallRequest::Part part, int64_t first_row,
                           const std::vector<torch::Tensor>& tensors) {
    proto::InstallRequest request;
    request.set_shard(table);
    request.set_part(part);
    request.set_first_row(first_row);
    *request.mutable_order() = order_of(*client_);
    (void)client_->call(0, "/ps/Install", make_frame(request, tensors), seconds(20));
  };
  const auto refused = [&](proto::InstallRequest::Part part, int64_t first_row,
                           const std::vector<torch::Tensor>& tensors, const std::string& text) {
    expect_error<InvalidArgument>([&] { install(part, first_row, tensors); }, text);
  };
  const auto rows = [](int64_t count) { return std::vector{torch::ones({count, 8}), torch::ones({count, 8})}; };
  const auto progress = [](const torch::Tensor& indices, const torch::Tensor& sum) {
    return std::vector{torch::zeros({2}, torch::kLong), torch::zeros({1, 2}, torch::kLong),
                       torch::tensor({0, 0, 2, 0, 0, 2}, torch::kLong), indices, sum};
  };
  refused(proto::InstallRequest::FIRST, 30, rows(20), "ps 0: shard 4 has 0 of 50 rows, but row 30 came next");
  install(proto::InstallRequest::FIRST, 0, rows(20));
  refused(proto::InstallRequest::PROGRESS, 0, {}, "shard 4 has 20 of 50 rows, but its progress came next");
  refused(proto::InstallRequest::ROWS, 30, rows(20), "shard 4 has 20 of 50 rows, but row 30 came next");
  refused(proto::InstallRequest::ROWS, 20, rows(31), "31 rows from row 20 on were asked for, there are 50");
  install(proto::InstallRequest::ROWS, 20, rows(30));
  for (const int64_t row : {5'000'000, -100}) {
    refused(proto::InstallRequest::PROGRESS, 0, progress(torch::tensor({row}), torch::ones({1, 8})),
            c10::str("table/part_0: a gradient: row ", row, " came, there are 50"));
  }
  refused(proto::InstallRequest::PROGRESS, 0, progress(torch::tensor({int64_t{1}}), torch::ones({3, 800})),
          "a gradient of 1 rows must be");
  install(proto::InstallRequest::PROGRESS, 0, progress(torch::tensor({int64_t{1}}), torch::ones({1, 8})));
  std::vector<Pull> pulls = {{.shard = table, .out = torch::empty({50, 8})}};
  client_->pull(pulls);
  EXPECT_TRUE(torch::equal(pulls[0].out, torch::ones({50, 8})));
}

TEST_F(Servers, AViewOfServersThatAreNotThereIsRefused) {
  for (const HomeIs& wrong : {HomeIs{7}, HomeIs{-1}, HomeIs{1, 5}, HomeIs{1, 1}, HomeIs{1, 0, -2}}) {
    const proto::View view = view_of(5, {{0}, wrong});
    expect_error<InvalidArgument>([&] { give_view(*client_, 0, view); }, "ps 0: a view came with home 1 on server ");
    expect_error<InvalidArgument>([&] { client_->set_view(view); }, "this task: a view came with home 1 on server ");
  }
  expect_error<InvalidArgument>([&] { client_->set_view(view_of(5, {{0}})); }, "a view of 1 homes came, there are 2");
  add_to_count(*client_, 1);
  EXPECT_EQ(count(), 1);
}

TEST(ServerClient, AnAnswerWithoutWhatWasAskedForIsDamaged) {
  auto catalog = std::make_shared<Catalog>(1);
  catalog->declare({.name = "n", .shape = {3}, .dtype = torch::kLong});
  const std::string address = "127.0.0.1:" + std::to_string(free_port("127.0.0.1"));
  const RpcServer server(address, {.threads = 2}, [](const std::string& method, const std::shared_ptr<RpcCall>& call) {
    proto::PullReply same;
    same.add_items()->set_same(true);
    if (method == "/ps/Pull") return answer(call, same);
    const bool progress = request_of<proto::StateRequest>(call).progress();
    call->reply(make_frame(rpc::Empty(), std::vector{torch::ones({progress ? 1 : 3}, torch::kLong)}));
  });
  ServerClient client(catalog, {.addresses = {address}, .security = {}, .timeout = seconds(20)});
  client.set_view(view_of(1, {{0}}));
  std::vector<Pull> pulls = {{.shard = 0, .out = torch::empty({3}, torch::kLong)}};
  expect_error<DataLoss>([&] { client.pull(pulls); }, "a server sends no value of shard 0");
  expect_error<DataLoss>([&] { (void)collect(client, *catalog, seconds(20)); }, "what came of n is no progress");
}

TEST_F(Servers, AMessageOfManyItemsIsRefused) {
  proto::PullRequest pull;
  pull.set_view(1);
  pull.set_epoch(1);
  for (int i = 0; i < 100'000; ++i) pull.add_items()->set_shard(0);
  expect_error<InvalidArgument>([&] { (void)client_->call(0, "/ps/Pull", make_frame(pull), seconds(20)); },
                                "a message has 100000 items, at most");
  proto::PushRequest push;
  push.set_view(1);
  push.set_epoch(1);
  for (int i = 0; i < 100'000; ++i) push.add_items()->set_shard(0);
  expect_error<InvalidArgument>([&] { (void)client_->call(0, "/ps/Push", make_frame(push), seconds(20)); },
                                "a message has 100000 items, at most");
  add_to_count(*client_, 1);
  EXPECT_EQ(count(), 1);
}

TEST_F(Servers, AShortQuestionMakesNoAnswerWithoutBounds) {
  proto::PullRequest pull;
  pull.set_view(1);
  pull.set_epoch(1);
  for (int i = 0; i < 17; ++i) {
    pull.add_items()->set_shard(0);
    pull.mutable_items(i)->set_known(-1);
  }
  expect_error<InvalidArgument>([&] { (void)client_->call(0, "/ps/Pull", make_frame(pull), seconds(20)); },
                                "which is too long for one answer");
}

}  // namespace
}  // namespace cohort::untrusted_test
