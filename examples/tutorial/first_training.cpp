// Chapter 1 of docs/tutorial: a module of LibTorch's, trained and evaluated on one device.
// Usage: tutorial_first_training [FILE for the weights]
#include <torch/torch.h>

#include <iostream>

#include "cohort/cohort.h"

// Plain LibTorch: nothing in it knows of Cohort.
struct NetImpl : torch::nn::Module {
  NetImpl()
      : hidden(register_module("hidden", torch::nn::Linear(28 * 28, 128))),
        head(register_module("head", torch::nn::Linear(128, 10))) {}
  torch::Tensor forward(const torch::Tensor& images) { return head(torch::relu(hidden(images.flatten(1)))); }
  torch::nn::Linear hidden, head;
};
TORCH_MODULE(Net);

int main(int argc, char** argv) {
  torch::manual_seed(1);
  const auto [train, test] = cohort::datasets::drawn_digits({.train_size = 4'000, .test_size = 1'000});

  cohort::Model model([] { return Net(); });
  model.compile({.optimizer = cohort::Adam({.learning_rate = 2e-3}),
                 .loss = cohort::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {cohort::SparseCategoricalAccuracy({.name = "accuracy"})}});

  const cohort::History history = model.fit(train.shuffle(4'000).batch(64), {.epochs = 6});
  const cohort::Logs result = model.evaluate(test.batch(64), {.verbose = cohort::Verbose::kSilent});
  std::cout << "loss of the first epoch: " << history["loss"].front() << ", of the last: " << history["loss"].back()
            << "\n"
            << "accuracy on digits that it has not seen: " << result["accuracy"] << "\n";
  if (argc > 1) model.save_weights(argv[1]);
}
