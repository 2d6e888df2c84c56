// Asynchronous training with parameter servers: digits, one program for the chief, the workers and the servers.
//
//   cohort launch --ps=2 --workers=2 --max_restarts=10 -- example_parameter_server --directory=run
//
// Usage: example_parameter_server [--data=FOLDER of MNIST] [--directory=FOLDER] [--epochs=5] [--replicas=1|2]
// The chief prints each epoch's loss, then how many examples were trained on and the accuracy. Whatever process is
// killed on the way (with --directory also the chief), the count is exact.
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "cohort/cohort.h"

namespace F = torch::nn::functional;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(784, 256));
    second = register_module("second", torch::nn::Linear(256, 128));
    head = register_module("head", torch::nn::Linear(128, 10));
  }
  torch::Tensor forward(const torch::Tensor& x) { return head(torch::relu(second(torch::relu(first(x.flatten(1)))))); }
  torch::nn::Linear first{nullptr};
  torch::nn::Linear second{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Net);

struct Flags {
  std::string data;
  std::string directory;
  int64_t epochs = 5;
  int replicas = 1;
  int64_t save_every = 100;  // steps
};

namespace {

// Gradients come in any order, some from old values: a rate that falls keeps the last of them from doing harm.
cohort::Schedule falling_rate() {
  return cohort::ExponentialDecay({.initial_learning_rate = 3e-3, .decay_steps = 300, .decay_rate = 0.5});
}

double accuracy(Net& net, const cohort::Dataset& test) {
  const torch::NoGradGuard no_grad;
  double right = 0.0;
  double all = 0.0;
  for (const cohort::Example& batch : test.batch(500)) {
    right += net->forward(batch.x).argmax(1).eq(batch.y).sum().item<double>();
    all += static_cast<double>(batch.size());
  }
  return right / all;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Asynchronous training with parameter servers");
  app.add_option("--data", flags.data);
  app.add_option("--directory", flags.directory);
  app.add_option("--epochs", flags.epochs);
  app.add_option("--replicas", flags.replicas);
  app.add_option("--save_every", flags.save_every);
  CLI11_PARSE(app, argc, argv);

  torch::manual_seed(1);
  const cohort::ParameterServerStrategy strategy({.replicas = flags.replicas, .directory = flags.directory});
  auto net = strategy.mirror([] { return Net(); });
  auto adam = strategy.optimizer(net, cohort::Adam({.learning_rate = falling_rate()}));
  auto seen = strategy.variable(torch::zeros({}, torch::kLong), {.name = "examples"});
  strategy.register_step("train", [&](const std::vector<torch::Tensor>& batch) -> std::vector<torch::Tensor> {
    const auto losses = strategy.run([&](cohort::Replica& replica) {
      const auto each = F::cross_entropy(net[replica]->forward(batch[0]), batch[1],
                                         F::CrossEntropyFuncOptions().reduction(torch::kNone));
      const auto loss = replica.global_mean(each);
      adam[replica].minimize(loss);  // the servers update; the new values come back
      return loss.detach();
    });
    seen.assign_add(torch::tensor(batch[1].size(0)));
    return {strategy.reduce(cohort::ReduceOp::kMean, losses)};
  });
  if (strategy.serve()) return 0;  // workers and parameter servers, until the run is over

  const auto digits = flags.data.empty() ? cohort::datasets::drawn_digits() : cohort::datasets::mnist(flags.data);
  const cohort::Dataset train = digits.train.shuffle(10'000, {.seed = 1}).batch(64);
  const cohort::ClusterCoordinator coordinator(strategy);
  int64_t epoch = 0;
  int64_t skip = 0;
  if (const auto& restored = coordinator.restored()) {  // this chief was lost, and started again
    epoch = std::stoll(restored->at("epoch"));
    skip = std::stoll(restored->at("step"));
  }
  for (; epoch < flags.epochs; ++epoch) {
    std::vector<cohort::RemoteValue> losses;
    auto batches = train.iterator({.epoch = epoch});
    int64_t step = 0;
    while (const auto batch = batches.next()) {
      if (step++ < skip) continue;
      losses.push_back(coordinator.schedule("train", {batch->x, batch->y}));
      if (!flags.directory.empty() && step % flags.save_every == 0) {
        coordinator.save({{"epoch", std::to_string(epoch)}, {"step", std::to_string(step)}});
      }
    }
    coordinator.join();
    skip = 0;
    double total = 0.0;
    for (const auto& loss : losses) total += loss.fetch()[0].item<double>();
    std::cout << "epoch " << epoch + 1 << ": loss " << total / static_cast<double>(losses.size()) << std::endl;
  }
  coordinator.pull();
  const auto count = seen.read().item<int64_t>();
  const double result = accuracy(net[0], digits.test);
  std::cout << "examples: " << count << "\naccuracy: " << result << std::endl;
  return count == flags.epochs * digits.train.cardinality() && result > 0.95 ? 0 : 1;
}
