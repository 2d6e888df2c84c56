// What holds the memory of the replicas' devices.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace cohort {

// The bytes that one thing holds on the device of each replica.
struct HeldBytes {
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t slots = 0;
  int64_t staging = 0;  // batches that are there ahead of the step

  HeldBytes& operator+=(const HeldBytes& other);
  int64_t total() const { return parameters + gradients + slots + staging; }
};

// Base of what can say how much memory it holds. Thread-safe.
class HoldsMemory {
 public:
  virtual ~HoldsMemory() = default;
  virtual HeldBytes held_bytes() const = 0;
};

// The holders of a strategy's memory, as long as they live. Thread-safe.
class MemoryHolders {
 public:
  void add(const std::weak_ptr<const HoldsMemory>& holder);
  // Returns what all of them hold.
  HeldBytes held_bytes() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<const HoldsMemory>> holders_;
};

}  // namespace cohort
