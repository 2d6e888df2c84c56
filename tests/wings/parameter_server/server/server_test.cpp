#include "wings/parameter_server/server/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <thread>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/wings/parameter_server/servers.h"

namespace cohort::server_test {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the servers of servers.h

TEST_F(Servers, DenseValuesAreReadTrainedAndReadBack) {
  const torch::Tensor start = torch::arange(4000.0).view({-1, 1}).expand({4000, 1024});
  EXPECT_TRUE(torch::equal(whole(*client_, *catalog_, 0), start));
  const auto [first, last] = catalog_->shards_of(0);
  ASSERT_EQ(last - first, 4U) << "two blocks on each";
  std::vector<Push> pushes;
  for (std::size_t shard = first; shard < last; ++shard) {
    const auto& shape = catalog_->shards()[shard].spec.shape;
    pushes.push_back({.shard = static_cast<uint32_t>(shard),
                      .id = {.closure = 1},
                      .value = torch::full(shape, 0.5),
                      .out = torch::empty(shape)});
  }
  client_->push(pushes);
  EXPECT_TRUE(torch::equal(whole(*client_, *catalog_, 0), start - 0.5));
  for (const Push& push : pushes) {
    const ShardInfo& place = catalog_->shards()[push.shard];
    EXPECT_TRUE(torch::equal(push.out, start.narrow(0, place.first_row, place.spec.shape[0]) - 0.5));
    EXPECT_EQ(push.version, 1);
  }
}

TEST_F(Servers, OnlyWhatChangedIsSent) {
  std::vector<Pull> pulls = {{.shard = 0, .out = torch::zeros(catalog_->shards()[0].spec.shape)}};
  client_->pull(pulls);
  EXPECT_EQ(pulls[0].version, 0);
  pulls[0].out.fill_(-1);
  client_->pull(pulls);
  EXPECT_EQ(pulls[0].out[5][0].item<float>(), -1.0F) << "not written again";
  std::vector<Push> pushes = {{.shard = 0, .id = {.closure = 1}, .value = torch::zeros_like(pulls[0].out)}};
  client_->push(pushes);
  client_->pull(pulls);
  EXPECT_EQ(pulls[0].out[5][0].item<float>(), 5.0F);
  EXPECT_EQ(pulls[0].version, 1);
}

TEST_F(Servers, RowsAreReadAndTrained) {
  const auto [first, last] = catalog_->shards_of(1);
  ASSERT_EQ(last - first, 2U);
  const auto low = static_cast<uint32_t>(first);
  const auto high = low + 1;
  const auto rows_then = [&] {
    std::vector<Pull> pulls = {{.shard = low, .out = torch::empty({2, 8}), .indices = torch::tensor({7, 3})},
                               {.shard = high, .out = torch::empty({1, 8}), .indices = torch::tensor({49})}};
    client_->pull(pulls);
    return torch::cat({pulls[0].out, pulls[1].out}).select(1, 0);
  };
  EXPECT_TRUE(torch::equal(rows_then(), torch::tensor({7.0F, 3.0F, 99.0F})));
  std::vector<Push> pushes = {{.shard = low,
                               .kind = proto::PushRequest::ROWS,
                               .id = {.closure = 1},
                               .value = torch::ones({1, 8}),
                               .indices = torch::tensor({3})}};
  client_->push(pushes);
  EXPECT_TRUE(torch::allclose(rows_then(), torch::tensor({7.0F, 2.9F, 99.0F})));
}

TEST_F(Servers, ValuesTravelHalfAsLongInHalfPrecision) {
  for (const auto type : {rpc::BFLOAT16, rpc::FLOAT16}) {
    const auto dtype = type == rpc::BFLOAT16 ? torch::kBFloat16 : torch::kHalf;
    const auto client = fleet_.client(type);
    client->set_view(client_->view());
    const torch::Tensor value = whole(*client_, *catalog_, 0);
    EXPECT_TRUE(torch::equal(whole(*client, *catalog_, 0), value.to(dtype).to(torch::kFloat)));
    const torch::Tensor gradient = torch::full(catalog_->shards()[0].spec.shape, 0.1);
    std::vector<Push> pushes = {{.shard = 0, .id = {.closure = static_cast<int64_t>(type)}, .value = gradient}};
    client->push(pushes);
    const int64_t rows = gradient.size(0);
    EXPECT_TRUE(torch::equal(whole(*client_, *catalog_, 0).slice(0, 0, rows),
                             value.slice(0, 0, rows) - gradient.to(dtype).to(torch::kFloat)));
    std::vector<Pull> counts = {
        {.shard = static_cast<uint32_t>(catalog_->shards_of(2).first), .out = torch::empty({2}, torch::kLong)}};
    client->pull(counts);  // whole numbers as they are
    EXPECT_EQ(counts[0].out[0].item<int64_t>(), 0);
  }
}

TEST_F(Servers, WhatIsWrongIsRefusedAndDoesNoHarm) {
  const auto push = [&](Push push) {
    std::vector<Push> pushes = {std::move(push)};
    client_->push(pushes);
  };
  expect_error<InvalidArgument>([&] { push({.shard = 0, .value = torch::ones({3})}); },
                                "w/part_0: a gradient must be contiguous, Float[1024, 1024], got Float[3]");
  expect_error<InvalidArgument>(
      [&] {
        push({.shard = static_cast<uint32_t>(catalog_->shards_of(2).first), .value = torch::ones({2}, torch::kLong)});
      },
      "count/part_0 is not trained");
  proto::PullRequest request;
  request.set_view(1);
  request.set_epoch(1);
  request.add_items()->set_shard(99);
  expect_error<InvalidArgument>([&] { (void)client_->call(0, "/ps/Pull", make_frame(request), seconds(20)); },
                                "shard 99 was asked for, there are");
  expect_error<Unimplemented>([&] { (void)client_->call(0, "/ps/Nothing", make_frame(request), seconds(20)); },
                              "ps 0 has no call /ps/Nothing");
  request.mutable_items(0)->set_shard(0);
  const std::vector<torch::Tensor> extra = {torch::ones({2})};
  expect_error<DataLoss>([&] { (void)client_->call(0, "/ps/Pull", make_frame(request, extra), seconds(20)); },
                         "it has 1 tensors too many");
  request.mutable_items(0)->set_shard(static_cast<uint32_t>(catalog_->shards_at(1).front()));
  expect_error<Unavailable>([&] { (void)client_->call(0, "/ps/Pull", make_frame(request), seconds(20)); },
                            "ps 0 is not the primary of home 1");
  request.set_view(7);
  expect_error<Unavailable>([&] { (void)client_->call(0, "/ps/Pull", make_frame(request), seconds(20)); },
                            "the call is of view 7 of epoch 1, this is 1 of epoch 1");
  expect_error<FailedPrecondition>(
      [&] {
        (void)set_view(*client_, {0}, view_of(2, {{1}, {0}}));
      },
      "ps 0 is to serve w/part_1, but does not have it");
  expect_error<InvalidArgument>([&] { give_view(*client_, 0, view_of(2, {{1}})); }, "a view of 1 homes came");
  expect_error<FailedPrecondition>([&] { give_view(*client_, 0, view_of(0, {{0}, {1}})); }, "view 0 came after view 1");
  add_to_count(*client_, 1);
  EXPECT_EQ(count(), 1);
}

TEST_F(Servers, AnotherProgramIsRefused) {
  proto::HelloRequest hello;
  hello.set_catalog(catalog_->description());
  proto::HelloReply reply;
  FrameReader(client_->call(1, "/ps/Hello", make_frame(hello), seconds(20)), reply).finish();
  EXPECT_EQ(reply.view().number(), 1U);
  hello.set_catalog("2 servers\nanother\n");
  expect_error<FailedPrecondition>([&] { (void)client_->call(1, "/ps/Hello", make_frame(hello), seconds(20)); },
                                   "ps 1 runs another program than the coordinator: \"w Float[4000, 1024]");
}

// A server dies and comes back empty: the client waits until the coordinator has filled it.
TEST_F(Servers, ACallWaitsForAServerThatComesBack) {
  add_to_count(*client_, 1);
  fleet_.kill(0);
  std::jthread coordinator([&] {
    std::this_thread::sleep_for(milliseconds(300));
    fleet_.start(0);
    const auto own = fleet_.client();
    own->set_view(client_->view());
    create(*own, 0, catalog_->shards_at(0));
    (void)set_view(*own, {0, 1}, view_of(2, {{0}, {1}}));
    client_->set_view(own->view());
  });
  add_to_count(*client_, 2);
  const torch::Tensor value = whole(*client_, *catalog_, 2);
  EXPECT_EQ(value[0].item<int64_t>(), 1) << "what it had was lost with it";
  EXPECT_EQ(value[2].item<int64_t>(), 2);
}

TEST_F(Servers, WhoWaitsTooLongHearsForWhom) {
  const ServerClient hasty(
      catalog_,
      {.addresses = fleet_.addresses(), .security = {}, .call_timeout = seconds(1), .timeout = milliseconds(400)});
  auto& client = const_cast<ServerClient&>(hasty);
  expect_error<Unavailable>([&] { add_to_count(client, 1); }, "waited 400 ms for the coordinator's view");
  client.set_view(client_->view());
  fleet_.kill(1);
  expect_error<Unavailable>([&] { add_to_count(client, 1); }, "waited 400 ms for ps 1, which has count/part_1: ");
  client.close("the run is over");
  expect_error<Cancelled>([&] { add_to_count(client, 1); }, "the run is over");
}

// The servers have backups: they die and return in turn while four threads add to a counter, and none of it is lost or
// doubled.
TEST_F(Servers, BackupsTakeOverWithoutALoss) {
  (void)set_view(*client_, {0, 1}, view_of(2, {{0, -1, 1}, {1, -1, 0}}));
  copy(*client_, 0, 0);
  copy(*client_, 1, 1);
  const proto::View first = set_view(*client_, {0, 1}, view_of(3, {{0, 1}, {1, 0}}));
  std::atomic<bool> done = false;
  std::atomic<int64_t> closures = 0;
  std::vector<std::unique_ptr<ServerClient>> clients;
  const auto tell_all = [&](const std::vector<int>& servers, const proto::View& view) {
    const proto::View complete = set_view(*client_, servers, view);
    for (const auto& client : clients) client->set_view(complete);
  };
  for (int i = 0; i < 4; ++i) clients.push_back(fleet_.client());
  for (const auto& client : clients) client->set_view(first);
  {
    std::vector<std::jthread> workers;
    for (const auto& client : clients) {
      workers.emplace_back([&] {
        while (!done) add_to_count(*client, ++closures);
      });
    }
    const std::shared_ptr<void> at_end(nullptr, [&](void*) { done = true; });  // also when something is thrown
    uint64_t number = 3;
    for (int round = 0; round < 6; ++round) {
      const int lost = round % 2;
      const int other = 1 - lost;
      std::this_thread::sleep_for(milliseconds(50));
      fleet_.kill(lost);
      tell_all({other}, view_of(++number, {{other}, {other}}));
      std::this_thread::sleep_for(milliseconds(50));
      fleet_.start(lost);
      tell_all({lost, other}, view_of(++number, {{other, -1, lost}, {other, -1, lost}}));
      copy(*client_, other, 0);
      copy(*client_, other, 1);
      tell_all({lost, other}, view_of(++number, {{0, 1}, {1, 0}}));
    }
  }
  EXPECT_EQ(count(), closures);
  EXPECT_GT(closures, 20);
  fleet_.kill(0);  // its backup has the same
  (void)set_view(*client_, {1}, view_of(100, {{1}, {1}}));
  EXPECT_EQ(count(), closures);
}

}  // namespace
}  // namespace cohort::server_test
