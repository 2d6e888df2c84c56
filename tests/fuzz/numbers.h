// Numbers: the bytes of a fuzzer as numbers. When they are used up every number is 0, which therefore stands for what
// is usual.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace cohort::fuzz {

// Throws what no code under test throws or catches.
inline void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

class Numbers {
 public:
  Numbers(const uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  bool empty() const { return size_ == 0; }
  int below(int count) { return byte() % count; }
  // Returns a small number, or now and then any.
  int64_t any() {
    constexpr int kSmall = 250;
    const uint8_t first = byte();
    if (first < kSmall) return first % 16 - 3;
    uint64_t number = 0;
    for (int i = 0; i < 8; ++i) number = number << 8 | byte();
    return static_cast<int64_t>(number);
  }
  // Returns how many of something there are: up to 3, or now and then up to 2^`most`.
  std::size_t count(int most = 12) {
    constexpr int kOdd = 24;
    return below(kOdd) == 1 ? std::size_t{1} << below(most + 1) : static_cast<std::size_t>(below(4));
  }

 private:
  uint8_t byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }

  const uint8_t* data_;
  std::size_t size_;
};

}  // namespace cohort::fuzz
