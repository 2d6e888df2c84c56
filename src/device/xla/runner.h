// Runs what is recorded (src/record) on the devices of a client.
#pragma once

#include <memory>
#include <vector>

#include "device/xla/client.h"
#include "record/runner.h"

namespace cohort {

struct XlaRunnerOptions {
  // The ids of the devices that xla:0, xla:1, ... are. Empty: all of this process.
  std::vector<int> devices = {};
  // XLA's flags for the programs, as in XlaCompileOptions.
  std::map<std::string, std::string> flags = {};
  // The longest that a compilation may take, and that reading a value may wait.
  std::chrono::milliseconds compile_limit = std::chrono::hours(1);
  std::chrono::milliseconds limit = kXlaWait;
};

// The value of a recorded tensor: a buffer.
class XlaData final : public record::DeviceData {
 public:
  explicit XlaData(XlaBuffer buffer) : buffer_(std::move(buffer)) {}
  const XlaBuffer& buffer() const { return buffer_; }

 private:
  XlaBuffer buffer_;
};

// Makes a runner, for record::set_runner(). A program is compiled at its first run on a device, or on several
// together, and kept. NotFound: the client has no such device in this process.
std::shared_ptr<record::GraphRunner> make_xla_runner(XlaClientPtr client, XlaRunnerOptions options = {});

}  // namespace cohort
