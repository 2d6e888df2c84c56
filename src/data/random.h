// Random numbers that are the same on every platform and whose state can be saved: splitmix64 (Steele, Lea and Flood,
// 2014).
#pragma once

#include <cstdint>

namespace cohort {

class Random {
 public:
  explicit Random(uint64_t seed = 0) : state_(seed) {}
  // Begins one of the independent streams of a seed.
  Random(uint64_t seed, uint64_t stream) : state_(seed) { state_ = (*this)() ^ (stream * 0xd1342543de82ef95ULL); }

  uint64_t operator()() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  // Returns a uniform number in [0, bound) without bias, for bound > 0 (Lemire, 2019).
  uint64_t below(uint64_t bound) {
    auto product = static_cast<unsigned __int128>((*this)()) * bound;
    if (static_cast<uint64_t>(product) < bound) {
      const uint64_t threshold = (0 - bound) % bound;
      while (static_cast<uint64_t>(product) < threshold) product = static_cast<unsigned __int128>((*this)()) * bound;
    }
    return static_cast<uint64_t>(product >> 64);
  }

  // Returns a uniform number in [0, 1).
  double uniform() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }

  uint64_t state() const { return state_; }
  void set_state(uint64_t state) { state_ = state; }

 private:
  uint64_t state_;
};

}  // namespace cohort
