// A training loop of one's own that saves everything that it needs, and goes on from there when it is started again.
// Usage: example_custom_loop_checkpointed FOLDER [STEPS]; makes at most STEPS steps of 200 and prints the weights' sum
// after the last one. SIGTERM makes it save and exit with 42.
#include <torch/torch.h>

#include <iostream>

#include "cohort/cohort.h"

int main(int argc, char** argv) {
  namespace F = torch::nn::functional;
  const std::string folder = argc > 1 ? argv[1] : "run";
  int64_t left = argc > 2 ? std::stoll(argv[2]) : 200;
  torch::manual_seed(1);
  const cohort::MirroredStrategy strategy({.devices = cohort::cpu_devices(2)});
  auto net = strategy.mirror([] { return torch::nn::Linear(784, 10); });
  auto adam = strategy.optimizer(net, cohort::Adam());
  const auto digits = cohort::datasets::drawn_digits({.train_size = 1'000, .test_size = 100});
  const auto batches = strategy.distribute(digits.train.shuffle(1'000).repeat().batch(50));

  cohort::Checkpoint checkpoint(strategy, folder, {.modules = {{"model", net}}, .optimizers = {{"optimizer", adam}}});
  cohort::DistributedIterator input = batches.iterator();
  int64_t step = checkpoint.restore(&input).value_or(cohort::Progress{}).step;
  std::cout << "goes on after step " << step << std::endl;
  for (; step < 200 && left > 0; --left) {
    strategy.run(
        [&](cohort::Replica& replica, const cohort::Example& share) {
          const auto each = F::cross_entropy(net[replica]->forward(share.x.flatten(1)), share.y,
                                             F::CrossEntropyFuncOptions().reduction(torch::kNone));
          adam[replica].minimize(replica.global_mean(each));
        },
        *input.next());
    ++step;
    const bool leave = checkpoint.preempted(input);
    if (leave || step % 50 == 0 || left == 1) {
      checkpoint.save({.step = step}, &input);
      std::cout << "saved step " << step << std::endl;
    }
    if (leave) return cohort::kPreemptedExitCode;  // what is being written is waited for
  }
  std::cout.precision(17);
  std::cout << "step " << step << ": " << net.state().front().second.to(torch::kDouble).sum().item<double>() << "\n";
  return 0;
}
