// What a server accepts, from whom, and what it refuses because it is late or meant for another process.
#include "wings/parameter_server/server/fence.h"

#include <gtest/gtest.h>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/wings/parameter_server/servers.h"

namespace cohort::fence_test {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the servers of servers.h

void restart(Fleet& fleet, int server) {
  fleet.kill(server);
  fleet.start(server);
}

// What was delayed on the network arrives when the shards are in use.
TEST_F(Servers, ADelayedFillDoesNotReplaceAShardInUse) {
  add_to_count(*client_, 1);
  proto::CreateRequest create;
  for (const std::size_t shard : catalog_->shards_at(0)) create.add_shards(static_cast<uint32_t>(shard));
  const auto refused = [&](const std::string& text) {
    expect_error<Unavailable>([&] { (void)client_->call(0, "/ps/Create", make_frame(create), seconds(20)); }, text);
  };
  *create.mutable_order() = order_of(*client_);
  create.mutable_order()->set_view(0);
  refused("what comes for home 0 is of view 0 of epoch 1");
  *create.mutable_order() = order_of(*client_, 99);
  refused("ps 0 was restarted: the order is for another process of it");
  create.mutable_order()->set_process(process_of(*client_, 0));
  create.mutable_order()->set_epoch(0);
  expect_error<FailedPrecondition>([&] { (void)client_->call(0, "/ps/Create", make_frame(create), seconds(20)); },
                                   "an order of epoch 0 came");
  EXPECT_EQ(count(), 1);
}

// The first attempt to fill a server was given up. Its message arrives when a later attempt has filled the server with
// newer values, before the view says so.
TEST_F(Servers, WhatIsLeftOfAnEarlierFillIsRefused) {
  restart(fleet_, 0);
  proto::CreateRequest create;
  for (const std::size_t shard : catalog_->shards_at(0)) create.add_shards(static_cast<uint32_t>(shard));
  *create.mutable_order() = order_of(*client_, process_of(*client_, 0));
  create.mutable_order()->set_serial(2);
  (void)client_->call(0, "/ps/Create", make_frame(create), seconds(20));
  create.mutable_order()->set_serial(1);
  expect_error<Unavailable>([&] { (void)client_->call(0, "/ps/Create", make_frame(create), seconds(20)); },
                            "term 0, attempt 1; this is view 0");
  create.mutable_order()->set_serial(3);
  (void)client_->call(0, "/ps/Create", make_frame(create), seconds(20));
}

// As soon as a server has heard of another coordinator it serves nobody in the view of the earlier one: what the
// coordinator fills now must not get the updates of earlier work.
TEST_F(Servers, TheFirstOrderOfALaterCoordinatorEndsTheEarlierView) {
  add_to_count(*client_, 1);
  proto::CreateRequest create;
  create.add_shards(static_cast<uint32_t>(catalog_->shards_at(0).front()));
  *create.mutable_order() = order_of(*client_, process_of(*client_, 0));
  create.mutable_order()->set_epoch(2);
  (void)client_->call(0, "/ps/Create", make_frame(create), seconds(20));
  proto::PullRequest pull;
  pull.set_view(1);
  pull.set_epoch(1);
  pull.add_items()->set_shard(static_cast<uint32_t>(catalog_->shards_at(0).front()));
  expect_error<Unavailable>([&] { (void)client_->call(0, "/ps/Pull", make_frame(pull), seconds(20)); },
                            "the coordinator of epoch 2 is in charge, and its view has not come yet");
}

// Two views with the same number are two coordinators at work, or one that has forgotten what it did.
TEST_F(Servers, AViewOfTheSameNumberIsTheSameView) {
  const proto::View view = client_->view();
  give_view(*client_, 0, view);
  proto::View other = view;
  other.mutable_homes(1)->set_primary(0);
  expect_error<FailedPrecondition>([&] { give_view(*client_, 0, other); },
                                   "there are two different views of number 1 in epoch 1");
  proto::View later = view;
  later.set_epoch(2);
  give_view(*client_, 0, later);
  expect_error<FailedPrecondition>([&] { give_view(*client_, 0, view); }, "an order of epoch 1 came");
}

// A restarted server has a place in the view by its number only: it answers nothing for it.
TEST_F(Servers, AnotherProcessOfAServerServesNothing) {
  const proto::View view = client_->view();
  restart(fleet_, 1);
  give_view(*client_, 1, view);
  proto::PullRequest pull;
  pull.set_view(1);
  pull.set_epoch(1);
  pull.add_items()->set_shard(static_cast<uint32_t>(catalog_->shards_at(1).front()));
  expect_error<Unavailable>([&] { (void)client_->call(1, "/ps/Pull", make_frame(pull), seconds(20)); },
                            "ps 1 is not the primary of home 1");
}

}  // namespace
}  // namespace cohort::fence_test
