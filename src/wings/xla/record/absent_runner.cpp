#include "wings/xla/record/absent_runner.h"

#include <ATen/Functions.h>

#include <algorithm>

namespace cohort::record {

namespace {

// What was placed, or a value that nobody computes.
class AbsentData final : public DeviceData {
 public:
  explicit AbsentData(torch::Tensor placed = {}) : placed_(std::move(placed)) {}
  const torch::Tensor& placed() const { return placed_; }

 private:
  torch::Tensor placed_;
};

using Values = std::vector<std::shared_ptr<DeviceData>>;

class AbsentRunner final : public GraphRunner {
 public:
  int devices() const override { return 1; }

  std::shared_ptr<DeviceData> place(const torch::Tensor& host, int /*device*/) override {
    return std::make_shared<AbsentData>(host);
  }

  torch::Tensor fetch(const DeviceData& data, const TensorType& type) override {
    const torch::Tensor& placed = dynamic_cast<const AbsentData&>(data).placed();
    return placed.defined() ? placed.clone() : at::zeros(type.sizes, type.dtype);
  }

  Values run(const std::shared_ptr<const Program>& program, std::span<const std::shared_ptr<DeviceData>> /*inputs*/,
             int /*device*/) override {
    const auto& all = program->operations();
    if (std::any_of(all.begin(), all.end(), [](const Operation& each) { return each.op == kAllReduceOp; })) {
      throw StepRecorded(program);
    }
    Values outputs;
    for (std::size_t i = 0; i < program->outputs().size(); ++i) outputs.push_back(std::make_shared<AbsentData>());
    return outputs;
  }

  std::vector<Values> run_replicas(const std::shared_ptr<const Program>& program, std::span<const Values> inputs,
                                   std::span<const int> devices) override {
    return {run(program, inputs.front(), devices.front())};
  }
};

}  // namespace

std::shared_ptr<GraphRunner> make_absent_runner() {
  return std::make_shared<AbsentRunner>();
}

}  // namespace cohort::record
