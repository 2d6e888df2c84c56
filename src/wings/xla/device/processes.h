// XlaProcesses: the processes whose devices one client has, as on the hosts of a TPU pod. Plugins share values between
// them through it, and whoever waits for a device hears from it that a process is gone, which the device does not tell.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "wings/xla/device/pjrt_abi.h"

namespace cohort {

// Thread-safe.
class XlaProcesses {
 public:
  virtual ~XlaProcesses() = default;

  // Returns how many there are, and the number of this one.
  virtual int count() const = 0;
  virtual int index() const = 0;

  // A store of values that all of them see. DeadlineExceeded: nobody has put the key within the limit. Unavailable: the
  // processes are no longer together.
  virtual std::string get(const std::string& key, std::chrono::milliseconds limit) = 0;
  virtual std::optional<std::string> try_get(const std::string& key) = 0;
  virtual void put(const std::string& key, const std::string& value) = 0;

  // Returns why the processes cannot go on together, or nothing.
  virtual std::optional<std::string> failure() const = 0;
};

// Gives a client that is made the functions of the store. The processes have to live as long as the client.
void offer_store(XlaProcesses& processes, pjrt::ClientCreateArgs& args);

}  // namespace cohort
