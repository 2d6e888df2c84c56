// What the nemeses train: variables on parameter servers that count, so that every shard tells which updates it has.
//
// Each step adds 1 to one row of every part of a table (the row of its number, which no other step has), to every
// element of a weight and to one number for each server. At the end every row that a step has must be 1, all others 0,
// and all other counts the number of steps: a lost update is a 0, one that was applied twice a 2. Ends with status 3 if
// they are not, with 1 if the run fails.
//
// Usage: chaos_counting --directory=FOLDER [--replicas=1|2] [--servers=2] [--steps=2000] [--megabytes=32]
//                       [--save_every=200] [--pause_ms=10]
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "cohort/cohort.h"

namespace {

constexpr int64_t kWidth = 64;      // of a row of the table; floats
constexpr int64_t kRowsBeyond = 8;  // that no step has, of each part
constexpr int kWrong = 3;           // the status

struct Flags {
  std::string directory;
  int replicas = 1;
  int servers = 2;
  int64_t steps = 2000;
  int64_t megabytes = 32;
  int64_t save_every = 200;
  int64_t pause_ms = 10;
};

struct WeightImpl : torch::nn::Module {
  WeightImpl() { weight = register_parameter("weight", torch::zeros({64, 16})); }
  torch::Tensor weight;
};
TORCH_MODULE(Weight);

// The row of this step in every part.
torch::Tensor rows_of(const std::vector<int64_t>& part_rows, int64_t step) {
  std::vector<int64_t> rows;
  int64_t first = 0;
  for (const int64_t count : part_rows) {
    rows.push_back(first + step);
    first += count;
  }
  return torch::tensor(rows);
}

// How many numbers are not `wanted`; says so.
int64_t wrong(const std::string& what, const torch::Tensor& counted, double wanted) {
  const torch::Tensor numbers = counted.to(torch::kDouble).flatten();
  const torch::Tensor others = numbers.ne(wanted).nonzero().flatten();
  if (others.numel() > 0) {
    const auto place = others[0].item<int64_t>();
    std::cout << "WRONG " << what << ": " << others.numel() << " of " << numbers.numel() << " are not " << wanted
              << "; the first, at " << place << ", is " << numbers[place].item<double>() << std::endl;
  }
  return others.numel();
}

cohort::ParameterServerStrategy strategy_of(const Flags& flags) {
  constexpr auto kTimeout = std::chrono::minutes(3);
  return cohort::ParameterServerStrategy({.variable_partitioner = cohort::FixedShardsPartitioner(flags.servers),
                                          .replicas = flags.replicas,
                                          .directory = flags.directory,
                                          .server_timeout = kTimeout,
                                          .coordinator_timeout = kTimeout,
                                          .timeout = kTimeout});
}

// Schedules the steps from the checkpoint's on, and waits for them.
void train(const cohort::ClusterCoordinator& coordinator, const Flags& flags) {
  int64_t first = 0;
  if (const auto& restored = coordinator.restored()) first = std::stoll(restored->at("step"));
  std::cout << "begins at step " << first << std::endl;
  for (int64_t step = first; step < flags.steps; ++step) {
    coordinator.schedule("count", {torch::tensor(step)});
    if ((step + 1) % flags.save_every == 0) {
      coordinator.save({{"step", std::to_string(step + 1)}});
      std::cout << "saved step " << step + 1 << std::endl;
    }
  }
  coordinator.join();
  coordinator.pull();
}

// How many numbers of the table are wrong; every part lies on another server.
int64_t wrong_rows(const cohort::ClusterCoordinator& coordinator, const std::vector<int64_t>& part_rows,
                   int64_t steps) {
  int64_t bad = 0;
  int64_t begin = 0;
  for (const int64_t part : part_rows) {
    const auto look = [&](int64_t from, int64_t to) {
      return coordinator.schedule("look", {torch::arange(begin + from, begin + to)}).fetch()[0];
    };
    const std::string name = "the part of the table from row " + std::to_string(begin);
    bad += wrong(name, look(0, steps), 1.0);
    bad += wrong(name + ", beyond", look(steps, std::min(part, steps + kRowsBeyond)), 0.0);
    begin += part;
  }
  return bad;
}

int run(const Flags& flags) {
  const cohort::ParameterServerStrategy strategy = strategy_of(flags);
  auto weight = strategy.mirror([] { return Weight(); });
  auto sgd = strategy.optimizer(weight, cohort::SGD({.learning_rate = 1.0}));
  const auto table =
      strategy.sharded_variable({.name = "table",
                                 .shape = {std::max<int64_t>(flags.megabytes * (1 << 20) / (kWidth * 4),
                                                             flags.servers * (flags.steps + kRowsBeyond)),
                                           kWidth},
                                 .optimizer = cohort::SGD({.learning_rate = 1.0}),
                                 .initializer = [](const torch::Tensor& part, int64_t) { part.zero_(); }});
  std::vector<cohort::Variable> counts;
  for (int i = 0; i < flags.servers; ++i) {
    counts.push_back(strategy.variable(torch::zeros({}, torch::kLong), {.name = "count_" + std::to_string(i)}));
  }
  strategy.register_step("count", [&](const std::vector<torch::Tensor>& step) -> std::vector<torch::Tensor> {
    std::this_thread::sleep_for(std::chrono::milliseconds(flags.pause_ms));
    strategy.run([&](cohort::Replica& replica) {
      const auto own = table.lookup(rows_of(table.part_rows(), step[0].item<int64_t>()));
      sgd[replica].minimize(-own.sum() - weight[replica]->weight.sum());
    });
    for (const auto& count : counts) count.assign_add(torch::ones({}, torch::kLong));
    return {};
  });
  strategy.register_step("look", [&](const std::vector<torch::Tensor>& rows) -> std::vector<torch::Tensor> {
    return {strategy.run([&](cohort::Replica&) { return table.lookup(rows[0]).detach(); }).values().front()};
  });
  if (strategy.serve()) return 0;

  const cohort::ClusterCoordinator coordinator(strategy);
  train(coordinator, flags);
  int64_t bad = wrong("weight", weight[0]->weight.detach(), static_cast<double>(flags.steps));
  for (const auto& count : counts) bad += wrong(count.name(), count.read(), static_cast<double>(flags.steps));
  bad += wrong_rows(coordinator, table.part_rows(), flags.steps);
  std::cout << (bad == 0 ? "every update counts once" : "updates are wrong") << std::endl;
  return bad == 0 ? 0 : kWrong;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Variables on parameter servers that count");
  app.add_option("--directory", flags.directory)->required();
  app.add_option("--replicas", flags.replicas);
  app.add_option("--servers", flags.servers);
  app.add_option("--steps", flags.steps);
  app.add_option("--megabytes", flags.megabytes);
  app.add_option("--save_every", flags.save_every);
  app.add_option("--pause_ms", flags.pause_ms);
  CLI11_PARSE(app, argc, argv);
  try {
    return run(flags);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
