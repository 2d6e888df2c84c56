// Asynchronous training by parameter servers, the counterparts of tensorflow_servers.py: an MLP whose parameters the
// servers have, and a bag of embeddings, the mean of 8 rows an example.
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench.h"
#include "cohort/cohort.h"

namespace cohort::bench {

namespace {

namespace F = torch::nn::functional;
using Tensors = std::vector<torch::Tensor>;

constexpr int64_t kBagRows = 1'000'000;
constexpr int64_t kBagWidth = 64;
constexpr int64_t kBags = 512;
constexpr int64_t kIds = 8;
constexpr std::size_t kBatches = 100;

// Schedules steps for so long, and prints how many a second were made by all workers together.
void report_rate(const ParameterServerStrategy& strategy, double seconds,
                 const std::function<void(const ClusterCoordinator&, int)>& schedule) {
  const ClusterCoordinator coordinator(strategy);
  const auto run = [&](int steps) {
    for (int step = 0; step < steps; ++step) schedule(coordinator, step);
    coordinator.join();
  };
  run(100);
  int steps = 0;
  const double begin = now();
  for (; now() - begin < seconds; steps += 200) run(200);
  std::cout << nlohmann::json{{"ps_steps_per_second", steps / (now() - begin)}} << std::endl;
}

}  // namespace

// Each worker has its batch at hand, as those of TensorFlow's dataset, which stays the same.
void run_server_mlp(double seconds) {
  torch::manual_seed(1);
  const ParameterServerStrategy strategy;
  auto net = strategy.mirror([] { return make_model("mlp"); });
  auto adam = strategy.optimizer(net, Adam({.learning_rate = 1e-3}));
  const int64_t size = batch_per_replica("mlp");
  const torch::Tensor x = make_input("mlp", size);
  const torch::Tensor y = torch::randint(kClasses, {size}, torch::kLong);
  strategy.register_step("train", [&](const Tensors&) -> Tensors {
    strategy.run([&](Replica& replica) { adam[replica].minimize(F::cross_entropy(net[replica]->forward(x), y)); });
    return {};
  });
  if (strategy.serve()) return;
  report_rate(strategy, seconds, [](const ClusterCoordinator& coordinator, int) { coordinator.schedule("train"); });
}

void run_server_bag(double seconds) {
  torch::manual_seed(1);
  const ParameterServerStrategy strategy({.variable_partitioner = FixedShardsPartitioner(2)});
  auto tower = strategy.mirror([] {
    return torch::nn::Sequential(torch::nn::Linear(kBagWidth, 64), torch::nn::ReLU(), torch::nn::Linear(64, 1));
  });
  auto adam = strategy.optimizer(tower, Adam({.learning_rate = 1e-3}));
  const auto table = strategy.sharded_variable(
      {.name = "table", .shape = {kBagRows, kBagWidth}, .optimizer = Adagrad({.learning_rate = 0.05})});
  std::vector<Tensors> batches;
  for (std::size_t i = 0; i < kBatches; ++i) {
    batches.push_back(
        {torch::randint(0, kBagRows, {kBags, kIds}, torch::kLong), torch::randint(0, 2, {kBags}).to(torch::kFloat)});
  }
  std::size_t next = 0;
  strategy.register_step("train", [&](const Tensors&) -> Tensors {
    const Tensors& batch = batches[next++ % kBatches];
    strategy.run([&](Replica& replica) {
      const torch::Tensor mean = table.lookup(batch[0]).mean(1);
      const torch::Tensor output = tower[replica]->forward(mean).squeeze(1);
      adam[replica].minimize(F::binary_cross_entropy_with_logits(output, batch[1]));
    });
    return {};
  });
  if (strategy.serve()) return;
  report_rate(strategy, seconds, [](const ClusterCoordinator& coordinator, int) { coordinator.schedule("train"); });
}

}  // namespace cohort::bench
