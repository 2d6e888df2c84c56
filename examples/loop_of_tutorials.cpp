// The loop that TensorFlow's tutorials write, on two devices, with what fails there today: nobody builds the optimizer
// before the first step, nothing is in a scope, the length of the distributed data is asked for, and a metric begins
// anew in every epoch (docs/from-tf-distribute.md).
// Usage: example_loop_of_tutorials; ends with the accuracy of the last epoch, above 0.8.
#include <torch/torch.h>

#include <iostream>

#include "cohort/cohort.h"

int main() {
  namespace F = torch::nn::functional;
  constexpr int64_t kEpochs = 8;
  torch::manual_seed(1);
  const cohort::MirroredStrategy strategy({.devices = cohort::cpu_devices(2)});
  auto net = strategy.mirror(
      [] { return torch::nn::Sequential(torch::nn::Linear(784, 64), torch::nn::ReLU(), torch::nn::Linear(64, 10)); });
  auto adam = strategy.optimizer(net, cohort::Adam({.learning_rate = 5e-3}));
  cohort::MirroredMetric accuracy(strategy, cohort::SparseCategoricalAccuracy());
  const auto digits = cohort::datasets::drawn_digits({.train_size = 4'000, .test_size = 100});
  const auto batches = strategy.distribute(digits.train.shuffle(4'000).batch(64));
  std::cout << batches.size() << " steps an epoch\n";  // len(dist_dataset)

  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    accuracy.reset_state();  // metric.reset_states()
    for (const auto& batch : batches) {
      strategy.run(
          [&](cohort::Replica& replica, const cohort::Example& share) {
            const auto output = net[replica]->forward(share.x.flatten(1));
            const auto each = F::cross_entropy(output, share.y, F::CrossEntropyFuncOptions().reduction(torch::kNone));
            adam[replica].apply_gradients(adam[replica].gradients(replica.global_mean(each)));
            accuracy.update_state(share.y, output.detach());
          },
          batch);
    }
    std::cout << "epoch " << epoch + 1 << ": accuracy " << accuracy.result() << "\n";
  }
  return accuracy.result() > 0.8 && adam.iterations() == kEpochs * batches.size() ? 0 : 1;
}
