// Chapter 4 of docs/tutorial: one replica, two, three, and what changes.
// Usage: tutorial_two_replicas
#include <torch/torch.h>

#include <iomanip>
#include <iostream>

#include "cohort/cohort.h"

using namespace cohort;
namespace F = torch::nn::functional;

struct NetImpl : torch::nn::Module {
  NetImpl()
      : hidden(register_module("hidden", torch::nn::Linear(28 * 28, 32))),
        head(register_module("head", torch::nn::Linear(32, 10))) {
    to(torch::kFloat64);  // so that rounding does not blur the comparison
  }
  torch::Tensor forward(const torch::Tensor& images) { return head(torch::relu(hidden(images.flatten(1)))); }
  torch::nn::Linear hidden, head;
};
TORCH_MODULE(Net);

Example in_float64(Example digit) {
  digit.x = digit.x.to(torch::kFloat64);
  return digit;
}

struct Trained {
  double loss = 0.0;      // mean of the last epoch
  torch::Tensor weights;  // all of them, one after the other
};

// Two epochs of 330 digits in global batches of 64: the last batch of an epoch has 10.
Trained train(int replicas, bool show_shares) {
  torch::manual_seed(1);
  const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
  auto net = strategy.mirror([] { return Net(); });
  auto adam = strategy.optimizer(net, Adam({.learning_rate = 1e-3}));
  const auto digits = datasets::drawn_digits({.train_size = 330, .test_size = 10}).train.map(in_float64);

  Trained trained;
  for (int epoch = 0; epoch < 2; ++epoch) {
    double total = 0.0;
    for (const GlobalBatch& batch : strategy.distribute(digits.batch(64))) {
      const auto losses = strategy.run(
          [&](Replica& replica, const Example& share) {
            const auto each = F::cross_entropy(net[replica]->forward(share.x), share.y,
                                               F::CrossEntropyFuncOptions().reduction(torch::kNone));
            const auto loss = replica.global_mean(each);  // not each.mean()
            adam[replica].minimize(loss);
            return loss.detach();
          },
          batch);
      total += strategy.reduce(ReduceOp::kSum, losses).item<double>();
      if (show_shares && epoch == 0) {
        std::cout << "a batch of " << batch.global_size() << ":";
        for (const Example& share : batch) std::cout << " " << share.size();
        std::cout << "\n";
      }
    }
    trained.loss = total / 6;  // steps
  }
  for (const auto& [name, value] : net.state()) {
    const auto flat = value.detach().flatten();
    trained.weights = trained.weights.defined() ? torch::cat({trained.weights, flat}) : flat.clone();
  }
  return trained;
}

int main() {
  const Trained one = train(1, false);
  std::cout << std::setprecision(10) << "1 replica:  loss " << one.loss << "\n";
  double difference = 0.0;
  for (const int replicas : {2, 3}) {
    const Trained several = train(replicas, replicas == 2);
    difference = std::max(difference, (several.weights - one.weights).abs().max().item<double>());
    std::cout << replicas << " replicas: loss " << several.loss << "\n";
  }
  std::cout << "the weights differ by less than 1e-12: " << (difference < 1e-12 ? "yes" : "no") << "\n";
  return difference < 1e-12 ? 0 : 1;
}
