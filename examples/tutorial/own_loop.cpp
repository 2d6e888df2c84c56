// Chapter 2 of docs/tutorial: a loop of one's own, beside the same loop in plain LibTorch.
// Usage: tutorial_own_loop
#include <torch/torch.h>

#include <cmath>
#include <iomanip>
#include <iostream>

#include "cohort/cohort.h"

struct NetImpl : torch::nn::Module {
  NetImpl()
      : hidden(register_module("hidden", torch::nn::Linear(28 * 28, 64))),
        head(register_module("head", torch::nn::Linear(64, 10))) {
    to(torch::kFloat64);  // so that rounding does not blur the comparison
  }
  torch::Tensor forward(const torch::Tensor& images) { return head(torch::relu(hidden(images.flatten(1)))); }
  torch::nn::Linear hidden, head;
};
TORCH_MODULE(Net);

namespace F = torch::nn::functional;

cohort::Dataset digits() {
  return cohort::datasets::drawn_digits({.train_size = 1'000, .test_size = 10})
      .train
      .map([](cohort::Example digit) {
        digit.x = digit.x.to(torch::kFloat64);
        return digit;
      })
      .batch(64);
}

// The loop as LibTorch's users write it.
double plain_epoch(Net& net, torch::optim::Adam& adam) {
  double total = 0.0;
  for (const cohort::Example& batch : digits()) {
    const auto loss = F::cross_entropy(net->forward(batch.x), batch.y);
    adam.zero_grad();
    loss.backward();
    adam.step();
    total += loss.item<double>();
  }
  return total / 16;  // steps
}

// The same under a strategy.
double cohort_epoch(const cohort::Strategy& strategy, cohort::Mirrored<Net>& net, cohort::MirroredOptimizer& adam) {
  double total = 0.0;
  for (const cohort::GlobalBatch& batch : strategy.distribute(digits())) {
    const auto losses = strategy.run(
        [&](cohort::Replica& replica, const cohort::Example& share) {
          const auto each = F::cross_entropy(net[replica]->forward(share.x), share.y,
                                             F::CrossEntropyFuncOptions().reduction(torch::kNone));
          const auto loss = replica.global_mean(each);
          adam[replica].minimize(loss);
          return loss.detach();
        },
        batch);
    total += strategy.reduce(cohort::ReduceOp::kSum, losses).item<double>();
  }
  return total / 16;  // steps
}

int main() {
  torch::manual_seed(1);
  Net plain;
  torch::optim::Adam plain_adam(plain->parameters(), torch::optim::AdamOptions(1e-3));

  torch::manual_seed(1);
  const cohort::OneDeviceStrategy strategy("CPU");
  auto net = strategy.mirror([] { return Net(); });
  // LibTorch's Adam adds another epsilon, and at another place, than Keras', which is the default.
  auto adam = strategy.optimizer(
      net, cohort::Adam({.learning_rate = 1e-3, .epsilon = 1e-8, .formulation = cohort::Formulation::kTorch}));

  double difference = 0.0;
  std::cout << std::fixed << std::setprecision(9);
  for (int epoch = 1; epoch <= 3; ++epoch) {
    const double theirs = plain_epoch(plain, plain_adam);
    const double ours = cohort_epoch(strategy, net, adam);
    std::cout << "epoch " << epoch << ": LibTorch " << theirs << "  Cohort " << ours << "\n";
    difference = std::max(difference, std::abs(theirs - ours));
  }
  std::cout << "equal to nine places: " << (difference < 1e-9 ? "yes" : "no") << "\n";
  return difference < 1e-9 ? 0 : 1;
}
