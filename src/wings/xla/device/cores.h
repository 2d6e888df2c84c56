// The cores of devices: which devices run the program of one together.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace cohort {

// Thread-safe.
class XlaCores : public std::enable_shared_from_this<XlaCores> {
 public:
  explicit XlaCores(int devices) : devices_(devices) {}

  // As XlaRunner::hold_cores().
  std::shared_ptr<const void> hold(const std::vector<std::vector<int>>& replicas);
  // Returns the cores of a device, of which it is the first. InvalidArgument: there is no such device.
  std::vector<int> of(int device) const;

 private:
  struct Held {
    std::vector<int> cores;
    int holders = 0;
  };
  void check(const std::vector<std::vector<int>>& replicas) const;
  void release(const std::vector<std::vector<int>>& replicas);

  const int devices_;
  mutable std::mutex mutex_;
  std::map<int, Held> held_;  // by the first core
};

}  // namespace cohort
