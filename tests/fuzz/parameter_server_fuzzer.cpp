// Whatever comes to a parameter server is answered, with an error of ours where it is no call, and the server goes on:
// what it had before is there afterwards. The first byte picks the call; the rest is its frame, with or without the
// frame's own head around it. Otherwise the bytes are the numbers and shapes in a run of well-formed calls: a state
// that is installed, updates and reads, which bytes alone would hardly come to.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>

#include "base/crc32c.h"
#include "cohort/error.h"
#include "parameter_server/server/server.h"

namespace {

using namespace cohort;  // NOLINT(google-build-using-namespace)

class FuzzCall final : public RpcCall {
 public:
  explicit FuzzCall(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    request_ = grpc::ByteBuffer(&slice, 1);
  }
  const grpc::ByteBuffer& request() const override { return request_; }
  void reply(const grpc::ByteBuffer&) override {}
  void fail(const std::exception&) override {}
  bool cancelled() const override { return false; }

 private:
  grpc::ByteBuffer request_;
};

std::shared_ptr<const Catalog> catalog() {
  static const std::shared_ptr<const Catalog> one = [] {
    auto made = std::make_shared<Catalog>(1);
    const auto fill = [](const torch::Tensor& rows, int64_t) { rows.zero_(); };
    made->declare({.name = "w", .shape = {4, 2}, .optimizer = Adam(), .initializer = fill});
    made->declare({.name = "t", .shape = {8, 2}, .optimizer = Adagrad(), .by_rows = true, .initializer = fill});
    made->declare({.name = "n", .shape = {}, .dtype = torch::kLong, .initializer = fill});
    return made;
  }();
  return one;
}

void call(ParameterServer& server, const std::string& method, const std::string& bytes) {
  try {
    server.handle(method, std::make_shared<FuzzCall>(bytes));
  } catch (const Error&) {
  }
}

std::string bytes_of(const grpc::ByteBuffer& frame) {
  std::vector<grpc::Slice> slices;
  (void)frame.Dump(&slices);
  std::string bytes;
  for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

// One that serves its three variables.
std::unique_ptr<ParameterServer> served() {
  auto server = std::make_unique<ParameterServer>(catalog(), ServingOptions{.addresses = {"127.0.0.1:1"}});
  parameter_server::CreateRequest create;
  for (uint32_t shard = 0; shard < 3; ++shard) create.add_shards(shard);
  call(*server, "/ps/Create", bytes_of(make_frame(create)));
  parameter_server::SetViewRequest view;
  view.mutable_view()->set_number(1);
  parameter_server::View::Home& home = *view.mutable_view()->add_homes();
  home.set_backup(-1);
  home.set_joining(-1);
  call(*server, "/ps/SetView", bytes_of(make_frame(view)));
  return server;
}

// Numbers out of the fuzzer's bytes: most are small, some are any.
class Numbers {
 public:
  Numbers(const uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  bool empty() const { return size_ == 0; }
  int64_t next() {
    constexpr int kSmall = 250;
    const uint8_t byte = take();
    if (byte < kSmall) return byte % 16 - 3;
    uint64_t number = 0;
    for (int i = 0; i < 8; ++i) number = number << 8 | take();
    return static_cast<int64_t>(number);
  }
  int64_t below(int64_t count) { return take() % count; }

  // Makes a tensor as the call wants it, or another one.
  torch::Tensor tensor(std::vector<int64_t> sizes, torch::ScalarType dtype) {
    constexpr int64_t kOdd = 8;
    if (below(kOdd) == 0) sizes = {below(4), below(5)};
    if (below(kOdd) == 0) dtype = below(2) == 0 ? torch::kLong : torch::kDouble;
    torch::Tensor made = torch::zeros(sizes, torch::kLong);
    for (int64_t i = 0; i < made.numel(); ++i) made.data_ptr<int64_t>()[i] = next();
    return made.to(dtype);
  }

 private:
  uint8_t take() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }

  const uint8_t* data_;
  std::size_t size_;
};

// A gradient of a shard, whole or of rows.
std::vector<torch::Tensor> gradient(Numbers& numbers, const ShardSpec& spec, bool by_rows) {
  if (!by_rows) return {numbers.tensor(spec.shape, spec.dtype)};
  const int64_t count = numbers.below(4);
  return {numbers.tensor({count}, torch::kLong), numbers.tensor({count, 2}, spec.dtype)};
}

void install(ParameterServer& server, Numbers& numbers) {
  const auto shard = static_cast<uint32_t>(numbers.below(3));
  const ShardSpec& spec = catalog()->shards()[shard].spec;
  const std::vector<int64_t> rows = spec.shape.empty() ? std::vector<int64_t>{1} : spec.shape;
  const Optimizer& optimizer = catalog()->optimizer_of(shard);
  parameter_server::InstallRequest request;
  request.set_shard(shard);
  std::vector<torch::Tensor> tensors;
  for (std::size_t i = 0; i < 1 + (spec.trainable ? optimizer.rule().slots().size() : 0); ++i) {
    tensors.push_back(numbers.tensor(rows, spec.dtype));
  }
  request.set_first_row(numbers.below(8) == 0 ? numbers.next() : 0);
  call(server, "/ps/Install", bytes_of(make_frame(request, tensors)));
  request.set_part(parameter_server::InstallRequest::PROGRESS);
  tensors = {numbers.tensor({2}, torch::kLong), numbers.tensor({1, 2}, torch::kLong)};
  for (int64_t left = numbers.below(4); left > 0; --left) {
    const torch::Tensor head = numbers.tensor({6}, torch::kLong);
    const std::vector<torch::Tensor> part = gradient(numbers, spec, numbers.below(2) == 0);
    if (head.numel() == 6 && numbers.below(8) != 0) head.view({-1})[5] = static_cast<int64_t>(part.size());
    tensors.push_back(head);
    tensors.insert(tensors.end(), part.begin(), part.end());
  }
  call(server, "/ps/Install", bytes_of(make_frame(request, tensors)));
}

void push(ParameterServer& server, Numbers& numbers) {
  parameter_server::PushRequest request;
  request.set_view(1);
  std::vector<torch::Tensor> tensors;
  for (int64_t left = 1 + numbers.below(3); left > 0; --left) {
    parameter_server::PushRequest::Item& item = *request.add_items();
    item.set_shard(static_cast<uint32_t>(numbers.below(3)));
    item.set_kind(static_cast<parameter_server::PushRequest::Kind>(numbers.below(4)));
    item.set_closure(numbers.next());
    item.set_ordinal(numbers.below(2));
    item.set_share(numbers.next());
    item.set_shares(numbers.next());
    item.set_read_back(numbers.below(2) == 0);
    const bool by_rows = item.kind() == parameter_server::PushRequest::ROWS;
    for (const auto& each : gradient(numbers, catalog()->shards()[item.shard()].spec, by_rows)) tensors.push_back(each);
  }
  call(server, numbers.below(4) == 0 ? "/ps/Replicate" : "/ps/Push", bytes_of(make_frame(request, tensors)));
}

void read(ParameterServer& server, Numbers& numbers) {
  parameter_server::PullRequest pull;
  pull.set_view(1);
  pull.add_items()->set_shard(static_cast<uint32_t>(numbers.below(3)));
  pull.mutable_items(0)->set_known(numbers.next());
  pull.mutable_items(0)->set_by_rows(numbers.below(2) == 0);
  std::vector<torch::Tensor> indices;
  if (pull.items(0).by_rows()) indices.push_back(numbers.tensor({numbers.below(5)}, torch::kLong));
  call(server, "/ps/Pull", bytes_of(make_frame(pull, indices)));
  parameter_server::StateRequest state;
  state.set_view(1);
  state.set_shard(static_cast<uint32_t>(numbers.below(3)));
  state.set_progress(numbers.below(2) == 0);
  state.set_first_row(numbers.next());
  state.set_rows(numbers.next());
  call(server, "/ps/State", bytes_of(make_frame(state)));
}

void run(ParameterServer& server, Numbers numbers) {
  constexpr int kCalls = 16;
  for (int i = 0; i < kCalls && !numbers.empty(); ++i) {
    const int64_t which = numbers.below(4);
    if (which == 0) install(server, numbers);
    if (which == 1) read(server, numbers);
    if (which > 1) push(server, numbers);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static const char* const methods[] = {"/ps/Pull",   "/ps/Push",    "/ps/Replicate", "/ps/Hello", "/ps/SetView",
                                        "/ps/Create", "/ps/Install", "/ps/State",     "/ps/Forget"};
  if (size < 2) return 0;
  const auto server = served();
  if (data[0] >= 128) {
    run(*server, {data + 1, size - 1});
    return 0;
  }
  std::string bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (data[1] % 2 == 0) {  // a head of the right length and checksum, and what follows it as elements
    const std::size_t split = bytes.size() < 4 ? bytes.size() : std::min<std::size_t>(bytes.size(), 4 + data[1] / 2);
    const std::array<uint32_t, 2> numbers = {static_cast<uint32_t>(split), crc32c(std::as_bytes(std::span(bytes)))};
    bytes = "CPS2" + std::string(reinterpret_cast<const char*>(numbers.data()), sizeof numbers) + bytes;
  }
  call(*server, methods[data[0] % std::size(methods)], bytes);
  parameter_server::HelloRequest hello;
  call(*server, "/ps/Hello", bytes_of(make_frame(hello)));
  return 0;
}
