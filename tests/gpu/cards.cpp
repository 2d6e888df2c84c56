#include "tests/gpu/cards.h"

#include <sys/wait.h>
#include <torch/cuda.h>
#include <torch/torch.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <string_view>

#include "cohort/device.h"

namespace cohort::gpu {

namespace {

constexpr int kStandIns = 2;
constexpr unsigned kSecondsOfTrial = 120;

// Moves parameters to cards, and has autograd add up gradients on each card, and between cards.
void train_on_stand_in() {
  stand_in_for_cards(kStandIns);
  for (const c10::DeviceIndex card : {0, 1}) {
    const torch::Device other(kCard, static_cast<c10::DeviceIndex>(1 - card));
    torch::Tensor x = torch::ones({2, 2}).requires_grad_();
    x.set_data(x.to(torch::Device(kCard, card)));
    const torch::Tensor here = (x * 2 + x).mm(x);
    (here.sum() + here.to(other).sum().to(x.device())).backward();
    TORCH_CHECK(torch::equal(x.grad().cpu(), torch::full({2, 2}, 24.0F)), "the gradient is ", x.grad().cpu());
  }
}

[[noreturn]] void try_stand_in(int told) {
  ::alarm(kSecondsOfTrial);
  ::dup2(told, STDERR_FILENO);
  try {
    train_on_stand_in();
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    ::_exit(1);
  }
  ::_exit(0);
}

Cards find() {
  const char* on = std::getenv("COHORT_GPU_TESTS_ON");
  Cards found;
  if (on != nullptr && std::string_view(on) == "stand_in") {
    const std::string refusal = what_refuses_stand_in();
    found.stand_in = refusal.empty();
    if (found.stand_in) {
      stand_in_for_cards(kStandIns);
      found.count = kStandIns;
    } else {
      std::cout << "nothing can stand in for cards: " << refusal << "\n";
    }
  }
  if (!found.stand_in) found.count = static_cast<int>(torch::cuda::device_count());
  if (found.count == 0) return found;
  const std::vector<LogicalDeviceOptions> parts(found.count == 1 ? 4 : 2, {.memory_limit_mb = 1024});
  for (const PhysicalDevice& card : list_physical_devices("GPU")) set_logical_devices(card, parts);
  return found;
}

}  // namespace

std::string what_refuses_stand_in() {
  std::array<int, 2> ends{};
  TORCH_CHECK(::pipe(ends.data()) == 0, "pipe() failed");
  const pid_t child = ::fork();
  TORCH_CHECK(child >= 0, "fork() failed");
  if (child == 0) try_stand_in(ends[1]);
  ::close(ends[1]);
  std::string told;
  std::array<char, 4096> part{};
  for (ssize_t size = 0; (size = ::read(ends[0], part.data(), part.size())) > 0;) {
    told.append(part.data(), static_cast<std::size_t>(size));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status == 0) return "";
  const std::string end = WIFSIGNALED(status) ? std::string("signal ") + ::strsignal(WTERMSIG(status)) : "an error";
  return "its backward pass ends with " + end + ": " + told.substr(0, told.find("\nframe #0"));
}

const Cards& found_cards() {
  static const Cards kFound = find();
  return kFound;
}

}  // namespace cohort::gpu
