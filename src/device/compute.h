// cuDNN's search for the fastest algorithm of each shape of a convolution: it pays where shapes repeat. The switches of
// LibTorch hold for the whole process (cohort/compute.h).
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace cohort {

// Turns the search on, unless the program has decided about it or operations have to be deterministic. Back ends of
// GPUs call it when a strategy takes their devices.
void begin_convolution_search();

// Watches the inputs of one model, and turns the search off when they have had too many shapes. Thread-safe.
class ConvolutionSearch {
 public:
  static constexpr std::size_t kMostShapes = 8;  // batches of training and evaluation, whole and short, of some sizes

  // Notes the shape of an input.
  void note(c10::IntArrayRef shape);

 private:
  std::mutex mutex_;
  std::set<std::vector<int64_t>> shapes_;
};

// Returns the value of CUBLAS_WORKSPACE_CONFIG with which cuBLAS repeats its sums: the given one if it is such a value,
// or one of them if none is given. InvalidArgument: another one is given.
std::string repeatable_workspace(const std::optional<std::string>& given);

}  // namespace cohort
