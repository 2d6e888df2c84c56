// A training loop of one's own over a plain torch::nn::Module, which knows nothing of distribution.
// Usage: example_custom_loop; prints the mean loss of each epoch, the last one below 0.7.
#include <torch/torch.h>

#include <iostream>

#include "cohort/cohort.h"

struct NetImpl : torch::nn::Module {
  NetImpl()
      : hidden(register_module("hidden", torch::nn::Linear(784, 128))),
        head(register_module("head", torch::nn::Linear(128, 10))) {}
  torch::Tensor forward(const torch::Tensor& x) { return head(torch::relu(hidden(x.flatten(1)))); }
  torch::nn::Linear hidden;
  torch::nn::Linear head;
};
TORCH_MODULE(Net);

int main() {
  namespace F = torch::nn::functional;
  torch::manual_seed(1);
  const cohort::MirroredStrategy strategy({.devices = cohort::cpu_devices(2)});
  auto net = strategy.mirror([] { return Net(); });  // one conceptual model, a copy on every replica
  auto adam = strategy.optimizer(net, cohort::Adam({.learning_rate = 1e-3}));
  const auto digits = cohort::datasets::drawn_digits({.train_size = 4'000, .test_size = 100});
  const auto batches = strategy.distribute(digits.train.shuffle(4'000).batch(64));

  double mean = 0.0;
  for (int epoch = 0; epoch < 8; ++epoch) {
    double total = 0.0;
    int64_t steps = 0;
    for (const auto& batch : batches) {  // shuffled anew
      const auto losses = strategy.run(
          [&](cohort::Replica& replica, const cohort::Example& share) {
            const auto each = F::cross_entropy(net[replica]->forward(share.x), share.y,
                                               F::CrossEntropyFuncOptions().reduction(torch::kNone));
            const auto loss = replica.global_mean(each);  // divides by the true size of the global batch
            adam[replica].minimize(loss);                 // backward, all-reduce, update
            return loss.detach();
          },
          batch);
      total += strategy.reduce(cohort::ReduceOp::kSum, losses).item<double>();
      ++steps;
    }
    mean = total / static_cast<double>(steps);
    std::cout << "epoch " << epoch + 1 << ": loss " << mean << "\n";
  }
  return mean < 0.7 ? 0 : 1;
}
