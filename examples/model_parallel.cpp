// One model split by hand over two devices: the first half on one, the second on the other; gradients cross the cut.
// Prints the loss before and after training; the last one is below a tenth of the first.
#include <torch/torch.h>

#include <iostream>

#include "cohort/cohort.h"

int main() {
  using namespace cohort;
  torch::manual_seed(1);
  const auto names = cpu_devices(2);  // on a machine with two GPUs: {"/GPU:0", "/GPU:1"}
  const LogicalDevice first = find_logical_device(names[0]);
  const LogicalDevice second = find_logical_device(names[1]);

  torch::nn::Sequential bottom(torch::nn::Linear(4, 32), torch::nn::Tanh());
  torch::nn::Sequential top(torch::nn::Linear(32, 1));
  {
    const DeviceScope scope(first);
    place(*bottom, "bottom");
  }
  {
    const DeviceScope scope(second);
    place(*top, "top");
  }
  auto parameters = bottom->parameters();
  for (const auto& parameter : top->parameters()) parameters.push_back(parameter);
  torch::optim::Adam adam(parameters, 0.01);

  const torch::Tensor x = torch::rand({256, 4}, first.torch_device);
  const torch::Tensor y = x.sum(1, true).sin().to(second.torch_device);
  double begin = 0.0;
  double end = 0.0;
  for (int step = 0; step < 300; ++step) {
    adam.zero_grad();
    const torch::Tensor loss = torch::mse_loss(top->forward(bottom->forward(x).to(second.torch_device)), y);
    loss.backward();
    adam.step();
    end = loss.item<double>();
    if (step == 0) begin = end;
  }
  std::cout << "loss " << begin << " -> " << end << "\n";
  return end < 0.1 * begin ? 0 : 1;
}
