#include "wings/xla/record/gathering.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "base/error_text.h"
#include "wings/xla/record/recorder.h"

namespace cohort::record {

namespace {

// Returns the value itself in place of one that was promised by steps that have been launched.
const std::shared_ptr<DeviceData>& settled(const std::shared_ptr<DeviceData>& data) {
  const auto* promised = dynamic_cast<const Promised*>(data.get());
  return promised == nullptr || promised->steps() != nullptr ? data : promised->value();
}

GatheringRunner::Values settled(std::span<const std::shared_ptr<DeviceData>> values) {
  GatheringRunner::Values own;
  own.reserve(values.size());
  for (const auto& value : values) own.push_back(settled(value));
  return own;
}

int64_t divided_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

void GatheringRunner::gather(GatheredLaunches launches) {
  const std::scoped_lock lock(mutex_);
  try {
    begin();
  } catch (...) {
    launches_ = {};
    throw;
  }
  launches_ = std::move(launches);
  to_come_ = launches_.steps;
}

int64_t GatheringRunner::gathered() const {
  const std::scoped_lock lock(mutex_);
  return steps_ == nullptr ? 0 : steps_->size();
}

torch::Tensor GatheringRunner::fetch(const DeviceData& data, const TensorType& type) {
  const auto* promised = dynamic_cast<const Promised*>(&data);
  if (promised == nullptr) return inner_->fetch(data, type);
  std::shared_ptr<DeviceData> value;
  {
    const std::scoped_lock lock(mutex_);
    if (promised->steps() != nullptr) begin();
    value = promised->value();
  }
  return inner_->fetch(*value, type);
}

std::vector<std::shared_ptr<DeviceData>> GatheringRunner::run(const std::shared_ptr<const Program>& program,
                                                              std::span<const std::shared_ptr<DeviceData>> inputs,
                                                              int device) {
  const std::scoped_lock lock(mutex_);
  begin();
  return inner_->run(program, settled(inputs), device);
}

std::vector<GatheringRunner::Values> GatheringRunner::run_replicas(const std::shared_ptr<const Program>& program,
                                                                   std::span<const Values> inputs,
                                                                   std::span<const int> devices) {
  const std::scoped_lock lock(mutex_);
  const std::vector<int> on(devices.begin(), devices.end());
  std::vector<Values> own(inputs.begin(), inputs.end());
  const bool gathers = launches_.steps > 1 && to_come_ > 0 && on == launches_.devices;
  const auto settle = [&] {
    for (Values& each : own) each = settled(each);
  };
  settle();
  if (steps_ != nullptr && !(gathers && steps_->takes(program, own, on))) begin();
  // What the steps have for themselves is known from the second one on.
  if (steps_ != nullptr) room_ = room_for(steps_->fresh_bytes(own));
  if (steps_ != nullptr && steps_->size() >= room_) begin();
  if (steps_ == nullptr) settle();
  if (!gathers || to_come_ < 1) return inner_->run_replicas(program, own, devices);
  if (steps_ == nullptr) {
    steps_ = std::make_shared<Steps>(program, on);
    room_ = room_for(0);
  }
  std::vector<Values> outputs = steps_->add(std::move(own));
  if (steps_->size() >= std::min(to_come_, room_)) begin();
  return outputs;
}

// Returns how many steps with so many bytes a launch has room for. That does not depend on how many are left, so that
// all launches are the same program.
int64_t GatheringRunner::room_for(int64_t bytes) const {
  const int64_t by_bytes = bytes == 0 ? kMostSteps : std::max<int64_t>(launches_.input_bytes / bytes, 1);
  return divided_up(launches_.steps, divided_up(launches_.steps, std::min(by_bytes, kMostSteps)));
}

void GatheringRunner::begin() {
  if (steps_ == nullptr) return;
  const std::shared_ptr<Steps> steps = steps_;
  try {
    if (const std::shared_ptr<Hosts> hosts = inner_->hosts(steps->devices())) {
      agree_on_steps(*hosts, *steps->program(), steps->size());
    }
    if (steps->size() == 1) {
      const std::vector<Values> inputs = steps->first_inputs();
      steps->finish(nullptr, inner_->run_replicas(steps->program(), inputs, steps->devices()));
    } else {
      const Loop loop = steps->loop(room_);
      steps->finish(&loop, launch(loop));
    }
  } catch (const std::exception& error) {
    steps_.reset();
    steps->fail_with(error_text(error));
    throw;
  }
  to_come_ -= steps->size();
  steps_.reset();
}

std::vector<GatheringRunner::Values> GatheringRunner::launch(const Loop& loop) {
  const Key key(loop.body, loop.feeds, loop.most, loop.kept);
  const std::shared_ptr<const Program>* const known = loops_.find(key);
  const std::shared_ptr<const Program> program =
      known != nullptr ? *known : loops_.put(key, make_loop(loop), kept_programs());
  std::vector<Values> inputs = steps_->inputs_of(loop);
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    inputs[r].push_back(number_of_runs(steps_->size(), steps_->devices()[r]));
  }
  return inner_->run_replicas(program, inputs, steps_->devices());
}

std::shared_ptr<DeviceData> GatheringRunner::number_of_runs(int64_t runs, int device) {
  std::shared_ptr<DeviceData>& number = numbers_[{runs, device}];
  if (number == nullptr) number = inner_->place(at::scalar_tensor(runs, torch::kLong), device);
  return number;
}

}  // namespace cohort::record
