// The arithmetic of distributed input, after TensorFlow's (reference: tf.distribute, get_distributed_batch sizes).
// Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cohort {

// Returns the sizes of the sub-batches that one worker's replicas take in turn. A global batch of G over N = workers *
// replicas_per_worker sub-batches: the first G mod N get one more; worker w's list is that list rotated left by w *
// replicas_per_worker. Over one cycle of N sub-batches every worker takes G, and every step takes G over all workers.
inline std::vector<int64_t> sub_batch_sizes(int64_t global, int64_t workers, int64_t replicas_per_worker,
                                            int64_t worker) {
  const int64_t count = workers * replicas_per_worker;
  std::vector<int64_t> sizes;
  sizes.reserve(static_cast<std::size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = (i + worker * replicas_per_worker) % count;
    sizes.push_back(global / count + (at < global % count ? 1 : 0));
  }
  return sizes;
}

// Returns the pieces + 1 borders at which a batch of unknown provenance is cut: ceil(size / pieces) each, the last ones
// perhaps empty.
inline std::vector<int64_t> legacy_borders(int64_t size, int64_t pieces) {
  const int64_t step = (size + pieces - 1) / pieces;
  std::vector<int64_t> borders;
  for (int64_t i = 0; i <= pieces; ++i) borders.push_back(i * step < size ? i * step : size);
  return borders;
}

// The number of steps in which workers that have so many examples each use them all, when their replicas take the
// sub-batches of sub_batch_sizes() in turn. A step in which nobody takes any does not count.
inline int64_t steps_of_parts(int64_t global, int64_t replicas, std::vector<int64_t> examples) {
  const auto workers = static_cast<int64_t>(examples.size());
  // The examples that worker w takes in step `turn` of a cycle, while it has enough.
  const auto taken = [&](int64_t w, int64_t turn) {
    const int64_t first = w * replicas + turn * replicas;
    int64_t sum = 0;
    for (int64_t j = 0; j < replicas; ++j) {
      const int64_t at = (first + j) % (workers * replicas);
      sum += global / (workers * replicas) + (at < global % (workers * replicas) ? 1 : 0);
    }
    return sum;
  };
  // Takes one cycle, of which every worker that has enough takes `global`. Returns the steps that count.
  const auto cycle = [&](std::vector<int64_t>& left) {
    int64_t steps = 0;
    for (int64_t turn = 0; turn < workers; ++turn) {
      bool counts = false;
      for (int64_t w = 0; w < workers; ++w) {
        int64_t& rest = left[static_cast<std::size_t>(w)];
        const int64_t share = std::min(rest, taken(w, turn));
        rest -= share;
        counts = counts || share > 0;
      }
      steps += counts ? 1 : 0;
    }
    return steps;
  };
  int64_t steps = 0;
  while (*std::max_element(examples.begin(), examples.end()) > 0) {
    int64_t whole = 0;  // cycles that are all alike: those of the worker that ends next
    for (const int64_t rest : examples) {
      if (rest >= global) whole = whole == 0 ? rest / global : std::min(whole, rest / global);
    }
    if (whole == 0 ||
        std::any_of(examples.begin(), examples.end(), [&](int64_t rest) { return rest > 0 && rest < global; })) {
      steps += cycle(examples);
      continue;
    }
    std::vector<int64_t> one = examples;
    steps += whole * cycle(one);
    for (int64_t& rest : examples) rest -= rest > 0 ? whole * global : 0;
  }
  return steps;
}

}  // namespace cohort
