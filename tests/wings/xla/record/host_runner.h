// A GraphRunner for tests: runs programs on the host by LibTorch's own operations, one after the other. It shares
// nothing with the lowering, so what it computes is what was recorded.
#pragma once

#include <memory>
#include <vector>

#include "wings/xla/record/runner.h"

namespace cohort::record {

class HostRunner : public GraphRunner {
 public:
  using Values = std::vector<std::shared_ptr<DeviceData>>;

  int devices() const override { return 8; }
  std::shared_ptr<DeviceData> place(const torch::Tensor& host, int device) override;
  torch::Tensor fetch(const DeviceData& data, const TensorType& type) override;
  std::vector<std::shared_ptr<DeviceData>> run(const std::shared_ptr<const Program>& program,
                                               std::span<const std::shared_ptr<DeviceData>> inputs,
                                               int device) override;
  std::vector<Values> run_replicas(const std::shared_ptr<const Program>& program, std::span<const Values> inputs,
                                   std::span<const int> devices) override;

  // The programs that ran, in their order, and on how many devices each.
  const std::vector<std::shared_ptr<const Program>>& ran() const { return ran_; }
  const std::vector<int>& replicas() const { return replicas_; }
  int placed() const { return placed_; }

 private:
  std::vector<std::shared_ptr<const Program>> ran_;
  std::vector<int> replicas_;
  int placed_ = 0;
};

}  // namespace cohort::record
