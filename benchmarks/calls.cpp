// Measures calls between two tasks: frames of 4 MiB there and back, four on their way at a time, and small ones.
#include <ATen/Functions.h>

#include <deque>
#include <future>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "bench.h"
#include "rpc/calls.h"
#include "rpc/security.h"

namespace cohort::bench {

namespace {

constexpr int64_t kMessageBytes = int64_t{4} << 20;
constexpr std::size_t kWindow = 4;
constexpr std::chrono::milliseconds kLimit = std::chrono::minutes(1);

torch::Tensor tensor_in(const Frame& frame) {
  rpc::Empty message;
  return FrameReader(frame, message).take();
}

}  // namespace

void run_calls_server(const std::string& address) {
  const JobSecurity security = job_security({}, false);
  const RpcServer server(address, {.security = security.security, .allow_insecure = security.allow_insecure},
                         [](const std::string& method, const std::shared_ptr<RpcCall>& call) {
                           if (method == "/small") return answer(call);
                           const torch::Tensor came = tensor_in(call->request());
                           call->reply(make_frame(rpc::Empty(), {&came, 1}));
                         });
  std::cout << "ready" << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
  }
}

void run_calls(const std::string& address, double seconds) {
  RpcClient client("the server", open_channel(address, job_security({}, false).security), {.wait_for_ready = true});
  const torch::Tensor sent = at::ones({kMessageBytes / 4});
  torch::Tensor back = at::empty_like(sent);
  std::deque<std::future<Frame>> under_way;
  const auto finish_one = [&] {
    rpc::Empty message;
    FrameReader(under_way.front().get(), message).take_into(back);
    under_way.pop_front();
  };
  const double small = median_time(seconds / 4, [&] { ask(client, "/small", rpc::Empty(), kLimit); });
  int64_t count = 0;
  const double begin = now();
  while (now() < begin + seconds) {
    while (under_way.size() < kWindow) {
      under_way.push_back(client.call("/same", make_frame(rpc::Empty(), {&sent, 1}), kLimit));
    }
    finish_one();
    ++count;
  }
  while (!under_way.empty()) finish_one(), ++count;
  const double bytes = 2.0 * kMessageBytes * static_cast<double>(count);
  std::cout << nlohmann::json{{"calls_gb_per_second", bytes / (now() - begin) / 1e9}, {"us_a_small_call", small * 1e6}}
            << std::endl;
}

}  // namespace cohort::bench
