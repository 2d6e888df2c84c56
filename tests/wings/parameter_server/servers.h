// Two parameter servers that serve three variables, and a client of theirs.
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "rpc/frame.h"
#include "tests/wings/parameter_server/fleet.h"

namespace cohort::testing {

namespace proto = parameter_server;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct HomeIs {
  int primary;
  int backup = -1;
  int joining = -1;
};

inline proto::View view_of(uint64_t number, const std::vector<HomeIs>& homes) {
  proto::View view;
  view.set_number(number);
  view.set_epoch(1);
  for (const HomeIs& each : homes) {
    proto::View::Home& home = *view.add_homes();
    home.set_primary(each.primary);
    home.set_backup(each.backup);
    home.set_joining(each.joining);
    home.set_term(number);
  }
  return view;
}

// Again, while a server that was just started cannot be reached yet.
template <typename Request>
Frame ask(ServerClient& client, int server, const std::string& method, const Request& request) {
  const Deadline deadline(seconds(20));
  for (;;) {
    try {
      return client.call(server, method, make_frame(request), seconds(10));
    } catch (const Unavailable&) {
      if (deadline.passed()) throw;
      std::this_thread::sleep_for(milliseconds(20));
    }
  }
}

// Returns the number of the process that is this server now.
inline uint64_t process_of(ServerClient& client, int server) {
  proto::HelloReply reply;
  FrameReader(ask(client, server, "/ps/Hello", proto::HelloRequest()), reply).finish();
  return reply.incarnation();
}

// Returns the view with the present processes of the servers that it names, as far as they are among `servers`.
inline proto::View with_processes(ServerClient& client, const std::vector<int>& servers, proto::View view) {
  for (const int server : servers) {
    const uint64_t process = process_of(client, server);
    for (proto::View::Home& home : *view.mutable_homes()) {
      if (home.primary() == server) home.set_primary_process(process);
      if (home.backup() == server) home.set_backup_process(process);
      if (home.joining() == server) home.set_joining_process(process);
    }
  }
  return view;
}

inline void give_view(ServerClient& client, int server, const proto::View& view) {
  proto::SetViewRequest request;
  *request.mutable_view() = view;
  (void)ask(client, server, "/ps/SetView", request);
}

// Gives the view, with the processes of these servers, to all of them, then to the client. Returns it.
inline proto::View set_view(ServerClient& client, const std::vector<int>& servers, const proto::View& view) {
  const proto::View complete = with_processes(client, servers, view);
  for (const int server : servers) give_view(client, server, complete);
  client.set_view(complete);
  return complete;
}

// Returns an order of the coordinator whose view the client has.
inline proto::Order order_of(ServerClient& client, uint64_t process = 0) {
  proto::Order order;
  order.set_epoch(client.view().epoch());
  order.set_view(client.view().number());
  order.set_process(process);
  return order;
}

inline void create(ServerClient& client, int server, const std::vector<std::size_t>& shards) {
  proto::CreateRequest request;
  for (const std::size_t shard : shards) request.add_shards(static_cast<uint32_t>(shard));
  *request.mutable_order() = order_of(client, process_of(client, server));
  (void)ask(client, server, "/ps/Create", request);
}

// Lets the primary of a home give it to the server that joins it.
inline void copy(ServerClient& client, int from, int home) {
  proto::CopyRequest request;
  request.set_home(home);
  request.set_term(client.view().homes(home).term());
  request.set_wait_ms(1000);
  *request.mutable_order() = order_of(client, process_of(client, from));
  const Deadline deadline(seconds(20));
  for (bool done = false; !done && !deadline.passed();) {
    proto::CopyReply reply;
    FrameReader(ask(client, from, "/ps/Copy", request), reply).finish();
    done = reply.done();
  }
}

// Row r begins as r everywhere.
inline void fill(const torch::Tensor& rows, int64_t first_row) {
  rows.copy_(torch::arange(first_row, first_row + rows.size(0)).view({-1, 1}).expand_as(rows));
}

inline torch::Tensor whole(ServerClient& client, const Catalog& catalog, std::size_t variable) {
  const auto [first, last] = catalog.shards_of(variable);
  std::vector<Pull> pulls;
  for (std::size_t shard = first; shard < last; ++shard) {
    const ShardSpec& spec = catalog.shards()[shard].spec;
    pulls.push_back({.shard = static_cast<uint32_t>(shard), .out = torch::empty(spec.shape, spec.dtype)});
  }
  client.pull(pulls);
  if (pulls.size() == 1) return pulls.front().out;
  std::vector<torch::Tensor> parts;
  for (const Pull& pull : pulls) parts.push_back(pull.out);
  return torch::cat(parts);
}

// A trained variable of several blocks on each of two servers, and a counter.
inline std::shared_ptr<Catalog> two_servers() {
  auto catalog = std::make_shared<Catalog>(2, FixedShardsPartitioner(2));
  catalog->declare({.name = "w", .shape = {4000, 1024}, .optimizer = SGD({.learning_rate = 1.0}), .initializer = fill});
  catalog->declare({.name = "table",
                    .shape = {100, 8},
                    .optimizer = Adagrad({.learning_rate = 0.1, .initial_accumulator_value = 0.0}),
                    .by_rows = true,
                    .initializer = fill});
  catalog->declare(
      {.name = "count", .shape = {3}, .dtype = torch::kLong, .initializer = [](auto rows, int64_t) { rows.zero_(); }});
  return catalog;
}

class Servers : public ::testing::Test {
 protected:
  void SetUp() override {
    create(*client_, 0, catalog_->shards_at(0));
    create(*client_, 1, catalog_->shards_at(1));
    (void)set_view(*client_, {0, 1}, view_of(1, {{0}, {1}}));
  }

  void add_to_count(ServerClient& client, int64_t closure) {
    const auto [first, last] = catalog_->shards_of(2);
    std::vector<Push> pushes;
    for (std::size_t shard = first; shard < last; ++shard) {
      pushes.push_back({.shard = static_cast<uint32_t>(shard),
                        .kind = proto::PushRequest::ADD,
                        .id = {.closure = closure},
                        .value = torch::ones(catalog_->shards()[shard].spec.shape, torch::kLong)});
    }
    client.push(pushes);
  }
  int64_t count() {
    const torch::Tensor value = whole(*client_, *catalog_, 2);
    EXPECT_TRUE(torch::equal(value, torch::full({3}, value[0].item<int64_t>(), torch::kLong))) << value;
    return value[0].item<int64_t>();
  }

  std::shared_ptr<Catalog> catalog_ = two_servers();
  Fleet fleet_{catalog_};
  std::unique_ptr<ServerClient> client_ = fleet_.client();
};

}  // namespace cohort::testing
