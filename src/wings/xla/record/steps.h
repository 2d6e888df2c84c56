// Steps that are not launched yet: runs of one program on the same devices, each of which takes what the one before
// will have made. What they are as a loop, and which step may come to them, is here; gathering.h launches them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "wings/xla/record/loop.h"
#include "wings/xla/record/runner.h"

namespace cohort::record {

class Steps;

// A value that a step will have made. It is filled in when the steps are launched, or gets the error of the launch.
// Under the lock of the runner that gave it out.
class Promised final : public DeviceData {
 public:
  Promised(std::shared_ptr<Steps> steps, int64_t step, std::size_t replica, int output)
      : steps_(std::move(steps)), step_(step), replica_(replica), output_(output) {}

  // Null: the value is there, or the launch has failed.
  const std::shared_ptr<Steps>& steps() const { return steps_; }
  int64_t step() const { return step_; }
  std::size_t replica() const { return replica_; }
  int output() const { return output_; }
  // Returns the value. FailedPrecondition: the launch failed; the message has its error.
  const std::shared_ptr<DeviceData>& value() const;

  void fill(std::shared_ptr<DeviceData> value);
  void fail_with(std::string error);

 private:
  std::shared_ptr<Steps> steps_;
  int64_t step_ = 0;
  std::size_t replica_ = 0;
  int output_ = 0;
  std::shared_ptr<DeviceData> value_;
  std::string error_;
};

class Steps : public std::enable_shared_from_this<Steps> {
 public:
  using Values = std::vector<std::shared_ptr<DeviceData>>;

  Steps(std::shared_ptr<const Program> program, std::vector<int> devices)
      : program_(std::move(program)), devices_(std::move(devices)) {}

  // Returns whether a run of the program on the devices with these inputs, by replica, can be the next step: it takes
  // nothing from the steps but what the last one will have made, the same in all replicas and steps.
  bool takes(const std::shared_ptr<const Program>& program, const std::vector<Values>& inputs,
             const std::vector<int>& devices) const;
  // Adds a step that takes() allows and returns what it will have made, by replica.
  std::vector<Values> add(std::vector<Values> inputs);

  int64_t size() const { return size_; }
  const std::shared_ptr<const Program>& program() const { return program_; }
  const std::vector<int>& devices() const { return devices_; }
  // Returns the inputs of the first step, by replica.
  std::vector<Values> first_inputs() const;
  // Returns how many bytes a step has for itself on one device, if the next one, which takes() allows, has these
  // inputs.
  int64_t fresh_bytes(const std::vector<Values>& inputs) const;

  // Returns the loop of the steps, with room for `most`: kept are the outputs of earlier steps that somebody still has.
  Loop loop(int64_t most) const;
  // Returns the inputs of the loop by replica, without the number of runs. Runs that do not take place have the inputs
  // of the last one.
  std::vector<Values> inputs_of(const Loop& loop) const;

  // Gives the results of the loop, or of the program if there is one step, to those who wait for them.
  void finish(const Loop* loop, const std::vector<Values>& results);
  // Tells those who wait that the launch has failed.
  void fail_with(const std::string& error);

 private:
  using Carried = std::vector<int>;  // for each input the output of the step before, or -1

  // Returns nothing if the inputs cannot be a step's behind the last one.
  std::optional<Carried> carried(const std::vector<Values>& inputs) const;
  std::optional<Carried> carried(const Values& inputs, std::size_t replica) const;
  bool is_fresh(std::size_t input) const;
  bool is_given_away(std::size_t output) const;

  std::shared_ptr<const Program> program_;
  std::vector<int> devices_;
  int64_t size_ = 0;
  Carried carried_;                                                          // from the second step on
  std::vector<std::vector<Values>> inputs_;                                  // [step][replica]; carried ones are null
  std::vector<std::vector<std::vector<std::weak_ptr<Promised>>>> promised_;  // [step][replica][output]
};

}  // namespace cohort::record
