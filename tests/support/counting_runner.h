// The runner of the process, with a count of what it is asked for.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "wings/xla/record/loop.h"
#include "wings/xla/record/recorder.h"

namespace cohort::testing {

class CountingRunner final : public record::GraphRunner {
 public:
  using Values = std::vector<std::shared_ptr<record::DeviceData>>;
  using ProgramPtr = std::shared_ptr<const record::Program>;

  // While it lives, the process runs by a runner of this class.
  class Scope {
   public:
    Scope() { record::set_runner(counting_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { record::set_runner(counting_->inner_); }
    CountingRunner* operator->() const { return counting_.get(); }

   private:
    std::shared_ptr<CountingRunner> counting_ = std::make_shared<CountingRunner>();
  };

  int devices() const override { return inner_->devices(); }
  std::shared_ptr<record::DeviceData> place(const torch::Tensor& host, int device) override {
    return inner_->place(host, device);
  }
  torch::Tensor fetch(const record::DeviceData& data, const record::TensorType& type) override {
    ++fetched;
    return inner_->fetch(data, type);
  }
  Values run(const ProgramPtr& program, std::span<const std::shared_ptr<record::DeviceData>> inputs,
             int device) override {
    ++alone;
    return inner_->run(program, inputs, device);
  }
  std::vector<Values> run_replicas(const ProgramPtr& program, std::span<const Values> inputs,
                                   std::span<const int> devices) override {
    launches.push_back(program->loop() == nullptr ? 0 : program->loop()->most);
    programs.insert(program);
    return inner_->run_replicas(program, inputs, devices);
  }
  std::shared_ptr<record::Hosts> hosts(std::span<const int> devices) const override { return inner_->hosts(devices); }
  record::ProgramCost cost(const ProgramPtr& program, int device) override { return inner_->cost(program, device); }

  int fetched = 0;
  int alone = 0;                  // programs that ran on one device
  std::vector<int64_t> launches;  // those of all replicas: how many steps each has room for, or 0
  std::set<ProgramPtr> programs;  // those that ran together

 private:
  const std::shared_ptr<record::GraphRunner> inner_ = record::runner();
};

}  // namespace cohort::testing
