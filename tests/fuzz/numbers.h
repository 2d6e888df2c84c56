// Numbers: a fuzzer's bytes as numbers. When they are used up every number is 0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort::fuzz {

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
