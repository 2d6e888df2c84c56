// A recommender with a large hashed embedding on parameter servers, on made data whose answer is known.
//
//   cohort launch --ps=2 --workers=2 -- example_recommender
//
// Usage: example_recommender [--rows=4000000] [--dimension=64] [--steps=2000] [--batch=512]
// Users and items are hashed into one table of --rows rows; only the rows of a batch travel. Whether a user likes an
// item is made by a rule of hidden numbers, so that the best possible accuracy is known: the chief prints it beside
// what was reached on examples that were not trained on.
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>

#include "cohort/cohort.h"

namespace F = torch::nn::functional;

namespace {

constexpr int64_t kUsers = 20'000;
constexpr int64_t kItems = 5'000;

struct Flags {
  int64_t rows = 4'000'000;
  int64_t dimension = 64;
  int64_t steps = 2'000;
  int64_t batch = 512;
};

// Ids of users and items, spread over the rows of the table (Knuth's multiplicative hashing).
torch::Tensor hashed(const torch::Tensor& ids, int64_t offset, int64_t rows) {
  return torch::remainder((ids + offset) * 2'654'435'761, rows);
}

// Someone likes something when it is good and they are easily pleased, together; and nine times in ten they say so.
struct World {
  World() {
    auto generator = at::detail::createCPUGenerator(7);
    users = torch::randn({kUsers}, generator);
    items = torch::randn({kItems}, generator);
  }

  // user and item [size], label float [size].
  std::vector<torch::Tensor> examples(int64_t size, uint64_t seed) const {
    auto generator = at::detail::createCPUGenerator(seed);
    const auto user = torch::randint(0, kUsers, {size}, generator, torch::kLong);
    const auto item = torch::randint(0, kItems, {size}, generator, torch::kLong);
    const auto likes = users.index_select(0, user) + items.index_select(0, item) > 0;
    const auto wrong = torch::rand({size}, generator) < 0.1;
    return {user, item, likes.logical_xor(wrong).to(torch::kFloat)};
  }

  torch::Tensor users;
  torch::Tensor items;
};

struct TowerImpl : torch::nn::Module {
  explicit TowerImpl(int64_t dimension) {
    hidden = register_module("hidden", torch::nn::Linear(3 * dimension, 64));
    head = register_module("head", torch::nn::Linear(64, 1));
  }
  torch::Tensor forward(const torch::Tensor& user, const torch::Tensor& item) {
    return head(torch::relu(hidden(torch::cat({user, item, user * item}, 1)))).squeeze(1);
  }
  torch::nn::Linear hidden{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Tower);

// Schedules the training, and now and then a test on examples that are not trained on; the last accuracy.
double train(const cohort::ClusterCoordinator& coordinator, const Flags& flags) {
  const World world;
  const auto test = [&] {
    std::vector<cohort::RemoteValue> parts;
    for (uint64_t i = 0; i < 10; ++i) {
      parts.push_back(coordinator.schedule("test", world.examples(2'000, 1'000'000 + i)));
    }
    double sum = 0.0;
    for (const auto& part : parts) sum += part.fetch()[0].item<double>();
    return sum / static_cast<double>(parts.size());
  };
  constexpr int64_t kRounds = 5;
  double reached = 0.0;
  for (int64_t round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    const int64_t steps = flags.steps / kRounds;
    for (int64_t step = 0; step < steps; ++step) {
      coordinator.schedule("train", world.examples(flags.batch, static_cast<uint64_t>(round * steps + step)));
    }
    coordinator.join();
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    reached = test();
    std::cout << (round + 1) * steps << " steps, " << static_cast<double>(steps) / spent.count()
              << " steps/s, accuracy " << reached << " (0.9 is the best there is)" << std::endl;
  }
  return reached;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("A recommender with its embedding on parameter servers");
  app.add_option("--rows", flags.rows);
  app.add_option("--dimension", flags.dimension);
  app.add_option("--steps", flags.steps);
  app.add_option("--batch", flags.batch);
  CLI11_PARSE(app, argc, argv);

  torch::manual_seed(1);
  // A part on every server, as long as each has 1 MiB.
  const cohort::ParameterServerStrategy strategy(
      {.variable_partitioner = cohort::MinSizePartitioner({.min_shard_bytes = 1 << 20, .max_shards = 2})});
  auto tower = strategy.mirror([&] { return Tower(flags.dimension); });
  auto adam = strategy.optimizer(tower, cohort::Adam({.learning_rate = 1e-3}));
  const auto table = strategy.sharded_variable({.name = "embedding",
                                                .shape = {flags.rows, flags.dimension},
                                                .optimizer = cohort::Adagrad({.learning_rate = 0.05})});
  const auto predict = [&](cohort::Replica& replica, const std::vector<torch::Tensor>& batch) {
    const auto user = table.lookup(hashed(batch[0], 0, flags.rows));
    const auto item = table.lookup(hashed(batch[1], kUsers, flags.rows));
    return tower[replica]->forward(user, item);
  };
  strategy.register_step("train", [&](const std::vector<torch::Tensor>& batch) -> std::vector<torch::Tensor> {
    return strategy
        .run([&](cohort::Replica& replica) {
          const auto each = F::binary_cross_entropy_with_logits(
              predict(replica, batch), batch[2], F::BinaryCrossEntropyWithLogitsFuncOptions().reduction(torch::kNone));
          const auto loss = replica.global_mean(each);
          adam[replica].minimize(loss);
          return loss.detach();
        })
        .values();
  });
  strategy.register_step("test", [&](const std::vector<torch::Tensor>& batch) -> std::vector<torch::Tensor> {
    return strategy
        .run([&](cohort::Replica& replica) {
          const torch::NoGradGuard no_grad;
          return (predict(replica, batch) > 0).eq(batch[2] > 0.5).to(torch::kFloat).mean();
        })
        .values();
  });
  if (strategy.serve()) return 0;

  return train(cohort::ClusterCoordinator(strategy), flags) > 0.8 ? 0 : 1;
}
