// GraphRunner: what has to exist beside recording so that recorded work gets done. src/wings/xla/device implements it
// by PJRT.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "wings/xla/record/hosts.h"
#include "wings/xla/record/program.h"

namespace cohort::record {

// What one run of a program takes, as far as it is known.
struct ProgramCost {
  std::optional<double> flops;
  std::optional<double> bytes_accessed;
  std::optional<int64_t> peak_bytes;
};

// Thread-safe. An error of the device is a cohort::Error that names the operation or the tensor.
class GraphRunner {
 public:
  virtual ~GraphRunner() = default;

  // Returns how many devices there are: xla:0 to xla:(devices() - 1).
  virtual int devices() const = 0;

  // Begins to copy a host's tensor (dense, row-major) to the device. The tensor is not written to afterwards.
  virtual std::shared_ptr<DeviceData> place(const torch::Tensor& host, int device) = 0;

  // Returns the value as a tensor on the host, of the type that it has in the program. Waits for it.
  virtual torch::Tensor fetch(const DeviceData& data, const TensorType& type) = 0;

  // Begins to run the program on one device and returns its outputs. inputs[i] is for program.inputs()[i]; none is a
  // HostData. An input that an output takes the memory of (Program::aliases) is unusable afterwards.
  virtual std::vector<std::shared_ptr<DeviceData>> run(const std::shared_ptr<const Program>& program,
                                                       std::span<const std::shared_ptr<DeviceData>> inputs,
                                                       int device) = 0;

  // Begins to run the program on several devices at once, as one program of so many replicas: all_reduce sums over
  // them. inputs[r] are those of devices[r], as for run(); so are the outputs.
  virtual std::vector<std::vector<std::shared_ptr<DeviceData>>> run_replicas(
      const std::shared_ptr<const Program>& program, std::span<const std::vector<std::shared_ptr<DeviceData>>> inputs,
      std::span<const int> devices) = 0;

  // Returns the processes with whose devices these run programs together: run_replicas() of these devices is one launch
  // of all processes, and all_reduce sums over the devices of all of them. Null: there is only this process.
  virtual std::shared_ptr<Hosts> hosts(std::span<const int> /*devices*/) const { return nullptr; }

  // Returns what the program takes on a device, for which it is compiled if it was not. Nothing is known at first.
  virtual ProgramCost cost(const std::shared_ptr<const Program>& /*program*/, int /*device*/) { return {}; }
};

}  // namespace cohort::record
