// Deciding by hand where things are placed: physical and logical devices, placement scopes, the placement log.
// Prints the devices and where each tensor went.
#include <torch/torch.h>

#include <iostream>

#include "cohort/cohort.h"

int main() {
  using namespace cohort;
  set_logical_devices({.type = "CPU", .index = 0}, 2);  // before they are used
  for (const LogicalDevice& device : list_logical_devices()) std::cout << device.spec.to_string() << "\n";

  set_log_device_placement(true);
  const DeviceScope outer("/CPU:1");
  const torch::Tensor a = place(torch::ones({2, 3}), "a");
  {
    const DeviceScope inner("/GPU:0");  // soft placement: the CPU where there is no GPU, with a warning
    const torch::Tensor b = place(torch::ones({3, 2}), "b");
    std::cout << "a times b: " << torch::mm(a.to(b.device()), b).sum().item<float>() << "\n";
  }
  std::cout << "current device: " << current_logical_device().name() << "\n";
  return current_logical_device().name() == "/CPU:1" ? 0 : 1;
}
