// Functions: signatures, values that are a part of them, side effects, what a step keeps (docs/functions.md). Usage:
// example_functions; prints the signatures and checks what comes out.
#include <torch/torch.h>

#include <iostream>

#include "cohort/cohort.h"

namespace {

bool holds(const char* what, bool fact) {
  if (!fact) std::cout << "wrong: " << what << "\n";
  return fact;
}

// A step of training, with a variable that it keeps.
bool trains() {
  torch::manual_seed(1);
  torch::nn::Linear net(3, 1);
  const torch::Tensor steps = torch::zeros({}, torch::kLong);

  auto step = cohort::function(
      [&](const torch::Tensor& x, const torch::Tensor& y) {
        const torch::Tensor loss = torch::mse_loss(net->forward(x), y);
        loss.backward();
        const torch::NoGradGuard no_grad;
        for (torch::Tensor& parameter : net->parameters()) {
          parameter.sub_(parameter.grad(), /*alpha=*/0.1);  // written in place: the next call reads it
          parameter.mutable_grad() = torch::Tensor();
        }
        steps.add_(1);
        return loss.detach();
      },
      {.name = "step"});

  torch::Tensor loss;
  for (int i = 0; i < 100; ++i) {
    const torch::Tensor x = torch::randn({16, 3});
    loss = step(x, x.sum(1, /*keepdim=*/true));
  }
  std::cout << "loss " << loss.item<float>() << " after " << steps.item<int64_t>() << " steps\n";
  return holds("one signature", step.experimental_get_tracing_count() == 1) && loss.item<float>() < 1e-3;
}

// A step with an optimizer, under a strategy.
bool minimizes() {
  const cohort::OneDeviceStrategy strategy("/CPU:0");
  auto net = strategy.mirror([] { return torch::nn::Linear(4, 1); });
  auto optimizer = strategy.optimizer(net, cohort::Adam({.learning_rate = 0.01}));
  auto train = cohort::function(
      [&](cohort::Replica& replica, const torch::Tensor& x) {
        const torch::Tensor loss = net[replica]->forward(x).square().mean();
        optimizer[replica].minimize(loss / replica.num_replicas_in_sync());
        return loss.detach();
      },
      {.name = "train"});
  for (int i = 0; i < 3; ++i) strategy.run(train, torch::ones({2, 4}));
  return holds("three updates of one signature",
               optimizer.iterations() == 3 && train.experimental_get_tracing_count() == 1);
}

bool has_signatures() {
  auto scaled = cohort::function([](const torch::Tensor& x, double by) { return x * by; }, {.name = "scaled"});
  scaled(torch::ones({2}), 3.0);
  scaled(torch::zeros({2}), 3.0);  // the same signature: other values of a tensor
  scaled(torch::ones({2}), 4.0);   // another one: a number is a part of it
  scaled(torch::ones({5}), 4.0);   // and so is a shape
  for (const std::string& signature : scaled.signatures()) std::cout << signature << "\n";

  auto rows =
      cohort::function([](const torch::Tensor& x) { return x.sum(0); }, {.name = "rows", .reduce_retracing = true});
  for (int64_t n = 1; n <= 8; ++n) rows(torch::ones({n, 2}));
  for (const std::string& signature : rows.signatures()) std::cout << signature << "\n";

  auto images = cohort::function(
      [](const torch::Tensor& x) { return x.mean(); },
      {.name = "images", .input_signature = {{{.shape = {{cohort::kAnySize, 3, 32, 32}}, .name = "x"}}}});
  images(torch::ones({8, 3, 32, 32}));
  try {
    images(torch::ones({8, 32, 32, 3}));
  } catch (const cohort::InvalidArgument& error) {
    std::cout << error.what() << "\n";
  }
  return holds("signatures",
               scaled.signatures().size() == 3 && rows.signatures().size() == 2 && images.signatures().size() == 1);
}

bool has_side_effects() {
  std::vector<int64_t> sizes;
  auto noted = cohort::function([&](const torch::Tensor& x) {
    sizes.push_back(x.size(0));  // on a TPU: while it is recorded; on a CPU: in each call
    return x + 1;
  });
  for (int i = 0; i < 3; ++i) noted(torch::ones({2}));
  noted(torch::ones({4}));
  std::cout << sizes.size() << " sizes were noted, of " << noted.experimental_get_tracing_count() << " signatures\n";

  cohort::run_functions_eagerly(true);  // for debugging: values can be read, everywhere
  noted(torch::ones({9}));
  cohort::run_functions_eagerly(false);
  return holds("no new signature", noted.experimental_get_tracing_count() == 2) && sizes.back() == 9;
}

}  // namespace

int main() {
  return trains() && minimizes() && has_signatures() && has_side_effects() ? 0 : 1;
}
