// Measures what parameter servers move and train; it is run by `cohort launch --ps=2 --workers=N`, every task with the
// same call.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench.h"
#include "cohort/cohort.h"

namespace cohort::bench {

namespace {

namespace F = torch::nn::functional;
using Tensors = std::vector<torch::Tensor>;

constexpr int64_t kDenseBytes = 100'000'000;
constexpr int64_t kRows = 4'000'000;
constexpr int64_t kDimension = 64;
constexpr int64_t kBatch = 512;
constexpr int64_t kUsers = 20'000;
constexpr int64_t kItems = 5'000;
constexpr int kRounds = 20;

struct WeightsImpl : torch::nn::Module {
  explicit WeightsImpl(int64_t count) { weight = register_parameter("weight", torch::zeros({count})); }
  torch::Tensor weight;
};
TORCH_MODULE(Weights);

void write_all(int to, const char* bytes, int64_t size) {
  while (size > 0) {
    const ssize_t part = ::write(to, bytes, static_cast<std::size_t>(size));
    if (part <= 0) throw Unavailable("[bench] write failed");
    bytes += part;
    size -= part;
  }
}

void read_all(int from, char* bytes, int64_t size) {
  while (size > 0) {
    const ssize_t part = ::read(from, bytes, static_cast<std::size_t>(size));
    if (part <= 0) throw Unavailable("[bench] read failed");
    bytes += part;
    size -= part;
  }
}

// Seconds for as many bytes there and back over a TCP connection of loopback: nothing but copies.
double tcp_seconds() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  if (::bind(listener, any, length) != 0 || ::listen(listener, 1) != 0 || ::getsockname(listener, any, &length) != 0) {
    throw Unavailable("[bench] no socket");
  }
  std::jthread other([&] {
    const int end = ::accept(listener, nullptr, nullptr);
    std::vector<char> bytes(kDenseBytes);
    for (int round = 0; round < kRounds; ++round) {
      read_all(end, bytes.data(), kDenseBytes);
      write_all(end, bytes.data(), kDenseBytes);
    }
    ::close(end);
  });
  const int end = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::connect(end, any, length) != 0) throw Unavailable("[bench] no connection");
  std::vector<char> bytes(kDenseBytes);
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const double start = now();
    write_all(end, bytes.data(), kDenseBytes);
    read_all(end, bytes.data(), kDenseBytes);
    times.push_back(now() - start);
  }
  other.join();
  ::close(end);
  ::close(listener);
  return median(std::move(times));
}

// The largest that this process was in memory.
double peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return 1024.0 * std::stod(line.substr(6));
  }
  throw NotFound("[bench] /proc/self/status has no VmHWM");
}

// A gradient of 100 MB to the servers, and the new values back.
void run_dense() {
  const ParameterServerStrategy strategy;
  auto weights = strategy.mirror([] { return Weights(kDenseBytes / 4); });
  auto sgd = strategy.optimizer(weights, SGD({.learning_rate = 1e-3}));
  strategy.register_step("dense", [&](const Tensors&) -> Tensors {
    std::vector<double> times;
    strategy.run([&](Replica& replica) {
      const torch::Tensor gradient = torch::ones({kDenseBytes / 4});
      for (int round = 0; round < kRounds; ++round) {
        const double start = now();
        sgd[replica].apply_gradients({gradient});
        times.push_back(now() - start);
      }
    });
    return {torch::tensor({median(std::move(times)), tcp_seconds()}, torch::kDouble)};
  });
  if (strategy.serve()) return;
  const ClusterCoordinator coordinator(strategy);
  const torch::Tensor seconds = coordinator.schedule("dense").fetch()[0];
  const double bytes = 2.0 * kDenseBytes;
  std::cout << nlohmann::json{{"ps_dense_gb_per_second", bytes / seconds[0].item<double>() / 1e9},
                              {"tcp_gb_per_second", bytes / seconds[1].item<double>() / 1e9}}
            << std::endl;
}

// Rows of 64 floats, looked up and updated, by one worker.
void run_rows(double seconds) {
  const ParameterServerStrategy strategy({.variable_partitioner = FixedShardsPartitioner(2)});
  auto weights = strategy.mirror([] { return Weights(2); });
  auto sgd = strategy.optimizer(weights, SGD());
  const auto table = strategy.sharded_variable(
      {.name = "table", .shape = {kRows, kDimension}, .optimizer = Adagrad({.learning_rate = 0.05})});
  constexpr int64_t kLookups = 16'384;
  strategy.register_step("rows", [&](const Tensors&) -> Tensors {
    double time = 0.0;
    strategy.run([&](Replica& replica) {
      const torch::Tensor indices = torch::randint(0, kRows, {kLookups}, torch::kLong);
      time = median_time(seconds, [&] {
        const torch::Tensor rows = table.lookup(indices);
        sgd[replica].minimize(rows.sum() + weights[replica]->weight.sum());
      });
    });
    return {torch::tensor(time, torch::kDouble)};
  });
  const double before = peak_bytes();  // the program and its libraries
  if (strategy.serve()) {
    const double needed = 2.0 * kRows / 2 * kDimension * sizeof(float);  // half of the rows, with Adagrad's slot
    if (strategy.task().type == "ps") {
      std::cout << nlohmann::json{{"ps_memory_ratio", (peak_bytes() - before) / needed}} << std::endl;
    }
    return;
  }
  const ClusterCoordinator coordinator(strategy);
  const auto time = coordinator.schedule("rows").fetch()[0].item<double>();
  std::cout << nlohmann::json{{"ps_rows_per_second", static_cast<double>(kLookups) / time}} << std::endl;
}

torch::Tensor hashed(const torch::Tensor& ids, int64_t offset) {
  return torch::remainder((ids + offset) * 2'654'435'761, kRows);
}

// Users, items, labels.
std::vector<Tensors> recommender_batches() {
  std::vector<Tensors> batches;
  for (int i = 0; i < 100; ++i) {
    batches.push_back({torch::randint(0, kUsers, {kBatch}, torch::kLong),
                       torch::randint(0, kItems, {kBatch}, torch::kLong),
                       torch::randint(0, 2, {kBatch}).to(torch::kFloat)});
  }
  return batches;
}

torch::Tensor recommender_rows(const Tensors& batch) {
  return torch::cat({hashed(batch[0], 0), hashed(batch[1], kUsers)});
}

torch::nn::Sequential recommender_tower() {
  return torch::nn::Sequential(torch::nn::Linear(3 * kDimension, 64), torch::nn::ReLU(), torch::nn::Linear(64, 1));
}

torch::Tensor recommender_loss(torch::nn::Sequential& tower, const torch::Tensor& both, const torch::Tensor& labels) {
  const auto user = both.slice(0, 0, kBatch);
  const auto item = both.slice(0, kBatch);
  const auto output = tower->forward(torch::cat({user, item, user * item}, 1)).squeeze(1);
  return F::binary_cross_entropy_with_logits(output, labels);
}

// The recommender of torch_rpc.py; steps a second of all workers together.
void run_recommender(double seconds) {
  const ParameterServerStrategy strategy({.variable_partitioner = FixedShardsPartitioner(2)});
  auto tower = strategy.mirror(recommender_tower);
  auto adam = strategy.optimizer(tower, Adam({.learning_rate = 1e-3}));
  const auto table = strategy.sharded_variable(
      {.name = "table", .shape = {kRows, kDimension}, .optimizer = Adagrad({.learning_rate = 0.05})});
  strategy.register_step("train", [&](const Tensors& batch) -> Tensors {
    strategy.run([&](Replica& replica) {
      const auto both = table.lookup(recommender_rows(batch));
      adam[replica].minimize(recommender_loss(tower[replica], both, batch[2]));
    });
    return {};
  });
  if (strategy.serve()) return;
  const ClusterCoordinator coordinator(strategy);
  const std::vector<Tensors> batches = recommender_batches();
  const auto run = [&](int steps) {
    for (int step = 0; step < steps; ++step) {
      coordinator.schedule("train", batches[static_cast<std::size_t>(step) % batches.size()]);
    }
    coordinator.join();
  };
  run(100);
  int steps = 0;
  const double begin = now();
  for (; now() - begin < seconds; steps += 200) run(200);
  std::cout << nlohmann::json{{"ps_steps_per_second", steps / (now() - begin)}} << std::endl;
}

// Measures the arithmetic of the run, by LibTorch, in a process that has tower and table (half of the rows, which is
// what a server has) at hand: what a worker could reach if everything between the tasks were free.
void run_arithmetic(double seconds) {
  torch::set_num_threads(1);
  torch::nn::Sequential tower = recommender_tower();
  torch::optim::Adam adam(tower->parameters(), 1e-3);
  const torch::Tensor table = torch::empty({kRows / 2, kDimension}).uniform_(-0.05, 0.05);
  const torch::Tensor squares = torch::zeros({kRows / 2, kDimension});
  const std::vector<Tensors> batches = recommender_batches();
  const auto step = [&](const Tensors& batch) {
    const auto [unique, inverse, counts] = at::_unique2(recommender_rows(batch).remainder(kRows / 2), true, true);
    const torch::Tensor rows = table.index_select(0, unique).requires_grad_();
    tower->zero_grad();
    recommender_loss(tower, rows.index_select(0, inverse), batch[2]).backward();
    const torch::NoGradGuard no_grad;
    adam.step();
    const torch::Tensor square = squares.index_select(0, unique).addcmul_(rows.grad(), rows.grad());
    squares.index_copy_(0, unique, square);
    table.index_copy_(0, unique, rows.addcdiv_(rows.grad(), square.sqrt().add_(1e-10), -0.05));
  };
  for (const Tensors& batch : batches) step(batch);
  std::size_t steps = 0;
  const double begin = now();
  for (; now() - begin < seconds; ++steps) step(batches[steps % batches.size()]);
  std::cout << nlohmann::json{{"arithmetic_steps_per_second", static_cast<double>(steps) / (now() - begin)}}
            << std::endl;
}

}  // namespace

void run_parameter_server(const std::string& what, double seconds) {
  if (what == "dense") return run_dense();
  if (what == "rows") return run_rows(seconds);
  if (what == "recommender") return run_recommender(seconds);
  if (what == "arithmetic") return run_arithmetic(seconds);
  if (what == "mlp") return run_server_mlp(seconds);
  if (what == "bag") return run_server_bag(seconds);
  throw InvalidArgument(
      "[bench] parameter_server: there are dense, rows, recommender, arithmetic, mlp and bag, not \"" + what + "\"");
}

}  // namespace cohort::bench
