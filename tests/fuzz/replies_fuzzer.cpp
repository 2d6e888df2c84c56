// Conversations of clients with a peer that answers anything: what is called for, with other numbers, names, shapes and
// sizes; errors of every kind; bytes; or nothing. The clients are those of parameter servers (pulls, updates, views and
// the state for a checkpoint), of the coordination leader (Membership) and of the coordinator (a worker's loop). Every
// call ends in time, well or with an error of ours; tensors that were to be filled keep their shape.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/fail.h"
#include "cohort/cluster/cluster_spec.h"
#include "cohort/error.h"
#include "coordination.pb.h"
#include "rpc/calls.h"
#include "tests/fuzz/calls.h"
#include "tests/fuzz/catalog.h"
#include "tests/fuzz/entry.h"
#include "wings/parameter_server/client/saved_variables.h"
#include "wings/parameter_server/worker/worker.h"

namespace cohort::fuzz::replies_fuzzer {
namespace {

namespace proto = cohort::parameter_server;
using std::chrono::milliseconds;

constexpr int kServers = 2;
constexpr int kOdd = 8;

std::shared_ptr<const Catalog> catalog() {
  static const std::shared_ptr<const Catalog> one = fuzz::catalog_of(kServers);
  return one;
}

const ShardSpec& spec_of(uint32_t shard) {
  return catalog()->shards().at(shard).spec;
}

// Returns a view as it should be, or another one.
proto::View any_view(Numbers& numbers) {
  proto::View view;
  view.set_number(static_cast<uint64_t>(numbers.below(kOdd) == 1 ? numbers.any() : 1 + numbers.below(3)));
  view.set_epoch(static_cast<uint64_t>(numbers.below(kOdd) == 1 ? numbers.any() : 1));
  view.set_run(static_cast<uint64_t>(numbers.below(kOdd) == 1));
  const std::size_t homes = numbers.below(kOdd) == 1 ? numbers.count() : kServers;
  for (std::size_t i = 0; i < homes; ++i) {
    proto::View::Home& home = *view.add_homes();
    home.set_primary(static_cast<int>(numbers.below(2 * kOdd) == 1 ? numbers.any() : numbers.below(kServers)));
    home.set_backup(static_cast<int>(numbers.below(2 * kOdd) == 1 ? numbers.any() : -1));
    home.set_joining(-1);
  }
  return view;
}

// The peer, which answers what its numbers say, and as it should when they are used up. Its signs of life have numbers
// of their own: how many are asked for is a matter of time.
class AnsweringPeer {
 public:
  AnsweringPeer()
      : server_("127.0.0.1:0", {.name = "a peer", .threads = 2},
                [this](const std::string& method, const std::shared_ptr<RpcCall>& call) {
                  const std::lock_guard lock(mutex_);
                  answer(method.ends_with("/Beat") ? beats_ : numbers_, method, *call);
                }) {}

  void speak(Numbers numbers, Numbers beats) {
    const std::lock_guard lock(mutex_);
    numbers_ = numbers;
    beats_ = beats;
  }
  void fall_silent() { speak({nullptr, 0}, {nullptr, 0}); }
  std::string address() const { return "127.0.0.1:" + std::to_string(server_.port()); }

 private:
  static void answer(Numbers& numbers, const std::string& method, RpcCall& call) {
    switch (numbers.empty() ? 0 : numbers.below(2 * kOdd)) {
      case 1:
        return refuse(numbers);
      case 2:
        return call.reply(fuzz::frame_of(fuzz::bytes_of(numbers)));
      case 3:
        return call.reply(fuzz::framed(fuzz::bytes_of(numbers), numbers.count(8)));
      case 4:
        return;  // the last owner lets it go
      default:
        return call.reply(reply_to(numbers, method, call.request()));
    }
  }
  static void refuse(Numbers& numbers) {
    const std::string text = numbers.below(2) == 0 ? "[a peer] no" : std::string(numbers.count(12), '\xff');
    switch (numbers.below(8)) {
      case 0:
        throw InvalidArgument(text);
      case 1:
        throw FailedPrecondition(text);
      case 2:
        throw DataLoss(text);
      case 3:
        throw NotFound(text);
      case 4:
        throw DeadlineExceeded(text);
      case 5:
        throw Cancelled(text);
      case 6:
        throw Internal(text);
      default:
        throw Unavailable(text);
    }
  }
  static Frame reply_to(Numbers& numbers, const std::string& method, const Frame& request) {
    if (method.starts_with("/coordination/")) return make_frame(coordination_answer(numbers));
    if (method == "/chief/Join") {
      proto::JoinReply reply;
      *reply.mutable_view() = any_view(numbers);
      reply.set_heartbeat_ms(static_cast<uint32_t>(numbers.any()));
      return make_frame(reply);
    }
    if (method == "/chief/Beat") {
      proto::BeatReply reply;
      *reply.mutable_view() = any_view(numbers);
      reply.set_over(numbers.empty());
      return make_frame(reply);
    }
    if (method == "/chief/Next") return work(numbers);
    if (method == "/ps/Pull") return values(numbers, request);
    if (method == "/ps/Push") return updated(numbers, request);
    if (method == "/ps/State") return state(numbers, request);
    return make_frame(rpc::Empty());
  }
  static coordination::Answer coordination_answer(Numbers& numbers) {
    coordination::Answer answer;
    answer.set_kind(static_cast<coordination::Answer::Kind>(numbers.below(2) == 0 ? 0 : numbers.any()));
    answer.set_reason(std::string(numbers.count(16), 'r'));
    for (std::size_t i = numbers.count(8); i > 0; --i) answer.add_missing(std::string(numbers.count(), 'm'));
    for (std::size_t i = numbers.below(kOdd) == 1 ? numbers.count() : 0; i > 0; --i) answer.add_left("somebody");
    for (std::size_t i = numbers.below(kOdd) == 1 ? numbers.count() : 2; i > 0; --i) answer.add_infos("{}");
    answer.set_value(std::string(numbers.count(20), 'v'));
    return answer;
  }
  static Frame work(Numbers& numbers) {
    proto::NextReply reply;
    reply.set_found(numbers.below(4) != 0);
    reply.set_over(numbers.empty() || numbers.below(kOdd) == 1);
    reply.set_closure(numbers.any());
    reply.set_step(std::string(numbers.count(), 's'));
    reply.set_share(numbers.any());
    reply.set_shares(numbers.any());
    reply.set_attempt(static_cast<uint64_t>(numbers.any()));
    std::vector<torch::Tensor> arguments;
    for (std::size_t i = numbers.count(8); i > 0; --i) arguments.push_back(tensor(numbers, {2}, torch::kFloat));
    return make_frame(reply, arguments);
  }
  // What a shard's tensors are, if it is one.
  static torch::Tensor value_of(Numbers& numbers, uint32_t shard, int64_t rows) {
    const ShardSpec& spec = spec_of(shard % 3);
    std::vector<int64_t> sizes = spec.shape;
    if (rows >= 0 && !sizes.empty()) sizes[0] = rows;
    return tensor(numbers, sizes, spec.dtype);
  }
  static Frame values(Numbers& numbers, const Frame& request) {
    proto::PullRequest asked;
    FrameReader reader(request, asked);
    proto::PullReply reply;
    std::vector<torch::Tensor> tensors;
    for (const auto& item : asked.items()) {
      proto::PullReply::Item& each = *reply.add_items();
      each.set_version(numbers.any());
      each.set_same(numbers.below(4) == 0);
      const int64_t rows = item.by_rows() ? reader.take().numel() : -1;
      if (!each.same()) tensors.push_back(value_of(numbers, item.shard(), rows));
    }
    for (std::size_t i = numbers.below(kOdd) == 1 ? numbers.count() : 0; i > 0; --i) reply.add_items();
    return make_frame(reply, tensors);
  }
  static Frame updated(Numbers& numbers, const Frame& request) {
    proto::PushRequest asked;
    const FrameReader reader(request, asked);
    proto::PushReply reply;
    std::vector<torch::Tensor> tensors;
    for (const auto& item : asked.items()) {
      reply.add_items()->set_version(numbers.any());
      if (item.read_back()) tensors.push_back(value_of(numbers, item.shard(), -1));
    }
    for (std::size_t i = numbers.below(kOdd) == 1 ? numbers.count() : 0; i > 0; --i) reply.add_items();
    return make_frame(reply, tensors);
  }
  static Frame state(Numbers& numbers, const Frame& request) {
    const auto asked = message_in<proto::StateRequest>(request);
    std::vector<torch::Tensor> tensors;
    if (asked.progress()) {
      tensors = {tensor(numbers, {2}, torch::kLong), tensor(numbers, {1, 2}, torch::kLong)};
    } else {
      for (std::size_t i = asked.shard() == 2 ? 1 : 2 + (asked.shard() == 0 ? 1 : 0); i > 0; --i) {
        tensors.push_back(value_of(numbers, asked.shard(), asked.shard() == 2 ? -1 : asked.rows()));
      }
    }
    return make_frame(rpc::Empty(), tensors);
  }

  std::mutex mutex_;
  Numbers numbers_{nullptr, 0};
  Numbers beats_{nullptr, 0};
  RpcServer server_;
};

// Calls, which may fail.
template <typename Fn>
void attempt(const Fn& fn) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    fn();
  } catch (const Error&) {
  }
  fuzz::require(std::chrono::steady_clock::now() - begin < std::chrono::seconds(90), "a call has no end");
}

ServerClientOptions client_options(const AnsweringPeer& peer) {
  return {.addresses = std::vector<std::string>(kServers, peer.address()),
          .call_timeout = milliseconds(500),
          .timeout = milliseconds(20)};
}

void read_and_update(ServerClient& client, Numbers& numbers) {
  const auto shard = static_cast<uint32_t>(numbers.below(3));
  const torch::Tensor value = torch::zeros(spec_of(shard).shape, spec_of(shard).dtype);
  const std::vector<int64_t> sizes = value.sizes().vec();
  switch (numbers.below(4)) {
    case 0: {
      std::vector<Pull> pulls{{.shard = shard, .out = value, .version = numbers.below(3) - 1}};
      if (shard == 1 && numbers.below(2) == 0) {
        pulls[0].indices = torch::tensor({0, 2}, torch::kLong);
        pulls[0].out = torch::zeros({2, 2});
      }
      pulls.push_back({.shard = 2, .out = torch::zeros({}, torch::kLong)});
      client.pull(pulls);
      fuzz::require(pulls[1].out.dim() == 0 && pulls[1].out.scalar_type() == torch::kLong, "another value came");
      break;
    }
    case 1: {
      std::vector<Push> pushes{{.shard = shard, .value = value, .out = torch::zeros_like(value)}};
      client.push(pushes);
      fuzz::require(pushes[0].out.sizes() == value.sizes(), "another value came back");
      break;
    }
    case 2:
      return client.set_view(any_view(numbers));
    default: {
      const SavedVariables saved = collect(client, *catalog(), milliseconds(500));
      for (const ServerVariable& variable : catalog()->variables()) {
        const torch::Tensor& read = saved.at(variable.name).value;
        fuzz::require(read.sizes() == c10::IntArrayRef(variable.shape) && read.scalar_type() == variable.dtype,
                      "another state came");
      }
    }
  }
  fuzz::require(value.sizes() == c10::IntArrayRef(sizes), "a tensor has got another shape");
}

void of_servers(const AnsweringPeer& peer, Numbers numbers) {
  ServerClient client(catalog(), client_options(peer));
  proto::View view;
  view.set_number(1);
  for (int i = 0; i < kServers; ++i) {
    proto::View::Home& home = *view.add_homes();
    home.set_primary(i);
    home.set_backup(-1);
    home.set_joining(-1);
  }
  client.set_view(view);
  constexpr int kCalls = 8;
  for (int i = 0; i < kCalls && !numbers.empty(); ++i) attempt([&] { read_and_update(client, numbers); });
}

void of_the_leader(const AnsweringPeer& peer, Numbers numbers) {
  const ClusterSpec cluster({{"chief", {peer.address()}}, {"worker", {"127.0.0.1:1"}}});
  attempt([&] {
    Membership member(cluster, {"worker", 0},
                      {.start_timeout = milliseconds(200), .heartbeat_timeout = milliseconds(100)});
    fuzz::require(member.infos().size() == 2, "a group of another size");
    while (!numbers.empty()) {
      const std::string key = std::to_string(numbers.below(2));
      switch (numbers.below(5)) {
        case 0:
          attempt([&] { member.barrier(key, milliseconds(20)); });
          break;
        case 1:
          attempt([&] { (void)member.put(key, std::string(numbers.count(20), 'x'), numbers.below(2) == 0); });
          break;
        case 2:
          attempt([&] { (void)member.get(key, milliseconds(20)); });
          break;
        case 3:
          attempt([&] { (void)member.try_get(key); });
          break;
        default:
          attempt([&] { member.require_whole(); });
      }
    }
  });
}

void of_the_coordinator(const AnsweringPeer& peer) {
  ServerClient servers(catalog(), client_options(peer));
  attempt([&] {
    WorkerLoop(servers, [](const Closure& closure) { return closure.arguments; },
               {.coordinator = peer.address(), .catalog = "c", .coordinator_timeout = milliseconds(150)})
        .run();
  });
}

}  // namespace

COHORT_FUZZER_ENTRY(replies)(const uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  static AnsweringPeer peer;
  const std::size_t part = (size - 1) / 4;
  const Numbers own(data + 1, part);
  peer.speak({data + 1 + part, 2 * part}, {data + 1 + 3 * part, part});
  if (data[0] % 8 < 4) of_servers(peer, own);
  if (data[0] % 8 == 4 || data[0] % 8 == 5) of_the_leader(peer, own);
  if (data[0] % 8 > 5) of_the_coordinator(peer);
  peer.fall_silent();
  return 0;
}

}  // namespace cohort::fuzz::replies_fuzzer
