// Gathering: a runner before another one, which holds launches of several devices back and begins them as one loop.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "wings/xla/record/runner.h"
#include "wings/xla/record/steps.h"

namespace cohort::record {

// A launch has at most so many steps: each has inputs of its own, which the program's text lists.
inline constexpr int64_t kMostSteps = 128;

// Which launches are held back.
struct GatheredLaunches {
  // The devices, one a replica.
  std::vector<int> devices = {};
  // How many steps come. With less than 2 nothing is held back.
  int64_t steps = 1;
  // The most bytes that the inputs of a loop's steps may have on one device, as far as each step has its own. Steps
  // with more are launched as several loops of about the same length.
  int64_t input_bytes = int64_t{256} << 20;
};

// Launches on the devices are held back while they are steps of a loop (steps.h): the values that they return are
// promised. They begin, as one launch, when as many have come as were announced or as there is room for, and before
// anything else is run or a value of them is fetched. An error of the launch comes out there, and again at everybody
// who wants a value of it. Thread-safe.
class GatheringRunner final : public GraphRunner {
 public:
  using Values = std::vector<std::shared_ptr<DeviceData>>;

  explicit GatheringRunner(std::shared_ptr<GraphRunner> inner) : inner_(std::move(inner)) {}

  // Begins what is held back, and holds back what is said from now on.
  void gather(GatheredLaunches launches);
  // Returns how many steps are held back.
  int64_t gathered() const;

  int devices() const override { return inner_->devices(); }
  std::shared_ptr<DeviceData> place(const torch::Tensor& host, int device) override {
    return inner_->place(host, device);
  }
  torch::Tensor fetch(const DeviceData& data, const TensorType& type) override;
  std::vector<std::shared_ptr<DeviceData>> run(const std::shared_ptr<const Program>& program,
                                               std::span<const std::shared_ptr<DeviceData>> inputs,
                                               int device) override;
  std::vector<Values> run_replicas(const std::shared_ptr<const Program>& program, std::span<const Values> inputs,
                                   std::span<const int> devices) override;
  std::shared_ptr<Hosts> hosts(std::span<const int> devices) const override { return inner_->hosts(devices); }
  ProgramCost cost(const std::shared_ptr<const Program>& program, int device) override {
    return inner_->cost(program, device);
  }

 private:
  // The body, what its inputs are, the room, and what is kept.
  using Key = std::tuple<std::shared_ptr<const Program>, std::vector<Feed>, int64_t, std::vector<int>>;

  void begin();
  int64_t room_for(int64_t bytes) const;
  std::vector<Values> launch(const Loop& loop);
  std::shared_ptr<DeviceData> number_of_runs(int64_t runs, int device);

  const std::shared_ptr<GraphRunner> inner_;
  mutable std::mutex mutex_;
  GatheredLaunches launches_;
  int64_t to_come_ = 0;           // steps of those that were announced which have not been launched
  std::shared_ptr<Steps> steps_;  // those that are held back, or null
  int64_t room_ = 1;              // how many of them a launch has room for
  Recent<Key, std::shared_ptr<const Program>> loops_;
  std::map<std::pair<int64_t, int>, std::shared_ptr<DeviceData>> numbers_;  // by number of runs and device
};

}  // namespace cohort::record
