// The random numbers that operations of this thread draw, noted so that they can be drawn again.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cohort {

// Returns LibTorch's own generators from which an operation on a device may draw: the host's, then the device's.
std::vector<at::Generator> default_generators(at::Device device);

// A generator from which something was drawn.
struct RandomDraw {
  at::Generator generator;
  at::Tensor before;      // its state before the first draw
  std::string operation;  // the one that drew first: "aten::bernoulli_"
};

// Notes from which of some generators this thread's operations draw while it lives. Watches may be nested: each notes
// for itself. Other threads may draw from the same generators: a generator that changes during an operation is taken
// for the one that it draws from, the first of the list if several do. Not thread-safe; to be destroyed by its own
// thread, the last one first.
class RandomWatch {
 public:
  explicit RandomWatch(std::vector<at::Generator> generators);
  RandomWatch(const RandomWatch&) = delete;
  RandomWatch& operator=(const RandomWatch&) = delete;
  ~RandomWatch();

  const std::vector<RandomDraw>& draws() const { return draws_; }

 private:
  friend struct RandomObserver;
  void begin();
  void end(const char* operation);

  RandomWatch* outer_;
  uint64_t handle_ = 0;
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> before_;  // their states before the operation
  std::vector<RandomDraw> draws_;
};

// Sets generators back to where they were before the draws, and when it ends to where they were when it began.
class DrawnAgain {
 public:
  explicit DrawnAgain(const std::vector<RandomDraw>& draws);
  DrawnAgain(const DrawnAgain&) = delete;
  DrawnAgain& operator=(const DrawnAgain&) = delete;
  ~DrawnAgain();

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> now_;
};

}  // namespace cohort
