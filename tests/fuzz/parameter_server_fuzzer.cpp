// Whatever comes to a parameter server is answered, with an error of ours where it is no call, and the server goes on:
// what it had before is there afterwards. The first byte picks the call; the rest is its frame, with or without the
// frame's own head around it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "cohort/error.h"
#include "parameter_server/server.h"

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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static const char* const methods[] = {"/ps/Pull",   "/ps/Push",    "/ps/Replicate", "/ps/Hello", "/ps/SetView",
                                        "/ps/Create", "/ps/Install", "/ps/State",     "/ps/Forget"};
  if (size < 2) return 0;
  const auto server = served();
  std::string bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (data[1] % 2 == 0) {  // a head of the right length, and what follows it as elements
    const std::size_t split = bytes.size() < 4 ? bytes.size() : std::min<std::size_t>(bytes.size(), 4 + data[1] / 2);
    const auto length = static_cast<uint32_t>(split);
    bytes = "CPS1" + std::string(reinterpret_cast<const char*>(&length), 4) + bytes;
  }
  call(*server, methods[data[0] % std::size(methods)], bytes);
  parameter_server::HelloRequest hello;
  call(*server, "/ps/Hello", bytes_of(make_frame(hello)));
  return 0;
}
