// Whatever comes to a parameter server is answered, with an error of ours where it is no call, and the server goes on:
// what it had before is there afterwards. The first byte picks the call; the rest is its frame, with or without the
// frame's own head around it. Otherwise the bytes are the numbers and shapes in a run of well-formed calls: a state
// that is installed, updates and reads, which bytes alone would hardly come to.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "cohort/error.h"
#include "tests/fuzz/calls.h"
#include "tests/fuzz/catalog.h"
#include "tests/fuzz/entry.h"
#include "wings/parameter_server/server/server.h"

namespace cohort::fuzz::parameter_server_fuzzer {
namespace {

std::shared_ptr<const Catalog> catalog() {
  static const std::shared_ptr<const Catalog> one = fuzz::catalog_of(1);
  return one;
}

void call(ParameterServer& server, const std::string& method, const Frame& frame) {
  try {
    server.handle(method, std::make_shared<fuzz::Call>(frame));
  } catch (const Error&) {
  }
}

// One that serves its three variables.
std::unique_ptr<ParameterServer> served() {
  auto server = std::make_unique<ParameterServer>(catalog(), ServingOptions{.addresses = {"127.0.0.1:1"}});
  parameter_server::CreateRequest create;
  for (uint32_t shard = 0; shard < 3; ++shard) create.add_shards(shard);
  call(*server, "/ps/Create", make_frame(create));
  parameter_server::SetViewRequest view;
  view.mutable_view()->set_number(1);
  parameter_server::View::Home& home = *view.mutable_view()->add_homes();
  home.set_backup(-1);
  home.set_joining(-1);
  call(*server, "/ps/SetView", make_frame(view));
  return server;
}

// A gradient of a shard, whole or of rows.
std::vector<torch::Tensor> gradient(fuzz::Numbers& numbers, const ShardSpec& spec, bool by_rows) {
  if (!by_rows) return {tensor(numbers, spec.shape, spec.dtype)};
  const auto count = static_cast<int64_t>(numbers.count(10));
  return {tensor(numbers, {count}, torch::kLong), tensor(numbers, {count, 2}, spec.dtype)};
}

void install(ParameterServer& server, fuzz::Numbers& numbers) {
  const auto shard = static_cast<uint32_t>(numbers.below(3));
  const ShardSpec& spec = catalog()->shards()[shard].spec;
  const std::vector<int64_t> rows = spec.shape.empty() ? std::vector<int64_t>{1} : spec.shape;
  const Optimizer& optimizer = catalog()->optimizer_of(shard);
  parameter_server::InstallRequest request;
  request.set_shard(shard);
  std::vector<torch::Tensor> tensors;
  for (std::size_t i = 0; i < 1 + (spec.trainable ? optimizer.rule().slots().size() : 0); ++i) {
    tensors.push_back(tensor(numbers, rows, spec.dtype));
  }
  request.set_first_row(numbers.below(8) == 0 ? numbers.any() : 0);
  call(server, "/ps/Install", make_frame(request, tensors));
  request.set_part(parameter_server::InstallRequest::PROGRESS);
  tensors = {tensor(numbers, {2}, torch::kLong), tensor(numbers, {1, 2}, torch::kLong)};
  for (std::size_t left = numbers.count(8); left > 0; --left) {
    const torch::Tensor head = tensor(numbers, {6}, torch::kLong);
    const std::vector<torch::Tensor> part = gradient(numbers, spec, numbers.below(2) == 0);
    if (head.numel() == 6 && numbers.below(8) != 0) head.view({-1})[5] = static_cast<int64_t>(part.size());
    tensors.push_back(head);
    tensors.insert(tensors.end(), part.begin(), part.end());
  }
  call(server, "/ps/Install", make_frame(request, tensors));
}

void push(ParameterServer& server, fuzz::Numbers& numbers) {
  parameter_server::PushRequest request;
  request.set_view(1);
  std::vector<torch::Tensor> tensors;
  for (std::size_t left = 1 + numbers.count(6); left > 0; --left) {
    parameter_server::PushRequest::Item& item = *request.add_items();
    item.set_shard(static_cast<uint32_t>(numbers.below(3)));
    item.set_kind(static_cast<parameter_server::PushRequest::Kind>(numbers.below(4)));
    item.set_closure(numbers.any());
    item.set_ordinal(numbers.below(2));
    item.set_share(numbers.any());
    item.set_shares(numbers.any());
    item.set_read_back(numbers.below(2) == 0);
    const bool by_rows = item.kind() == parameter_server::PushRequest::ROWS;
    for (const auto& each : gradient(numbers, catalog()->shards()[item.shard()].spec, by_rows)) tensors.push_back(each);
  }
  call(server, numbers.below(4) == 0 ? "/ps/Replicate" : "/ps/Push", make_frame(request, tensors));
}

void read(ParameterServer& server, fuzz::Numbers& numbers) {
  parameter_server::PullRequest pull;
  pull.set_view(1);
  pull.add_items()->set_shard(static_cast<uint32_t>(numbers.below(3)));
  pull.mutable_items(0)->set_known(numbers.any());
  pull.mutable_items(0)->set_by_rows(numbers.below(2) == 0);
  std::vector<torch::Tensor> indices;
  if (pull.items(0).by_rows()) indices.push_back(tensor(numbers, {numbers.below(5)}, torch::kLong));
  call(server, "/ps/Pull", make_frame(pull, indices));
  parameter_server::StateRequest state;
  state.mutable_order()->set_view(1);
  state.set_shard(static_cast<uint32_t>(numbers.below(3)));
  state.set_progress(numbers.below(2) == 0);
  state.set_first_row(numbers.any());
  state.set_rows(numbers.any());
  call(server, "/ps/State", make_frame(state));
}

void run(ParameterServer& server, fuzz::Numbers numbers) {
  constexpr int kCalls = 16;
  for (int i = 0; i < kCalls && !numbers.empty(); ++i) {
    const int which = numbers.below(4);
    if (which == 0) install(server, numbers);
    if (which == 1) read(server, numbers);
    if (which > 1) push(server, numbers);
  }
}

}  // namespace

COHORT_FUZZER_ENTRY(parameter_server)(const uint8_t* data, std::size_t size) {
  static const char* const methods[] = {"/ps/Pull",   "/ps/Push",    "/ps/Replicate", "/ps/Hello", "/ps/SetView",
                                        "/ps/Create", "/ps/Install", "/ps/State",     "/ps/Forget"};
  if (size < 2) return 0;
  const auto server = served();
  if (data[0] >= 128) {
    run(*server, {data + 1, size - 1});
    return 0;
  }
  const std::string bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  call(*server, methods[data[0] % std::size(methods)],
       data[1] % 2 == 0 ? fuzz::framed(bytes, 4 + data[1] / 2) : fuzz::frame_of(bytes));
  parameter_server::HelloRequest hello;
  call(*server, "/ps/Hello", make_frame(hello));
  return 0;
}

}  // namespace cohort::fuzz::parameter_server_fuzzer
