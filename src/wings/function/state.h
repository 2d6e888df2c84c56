// What the copies of a Function share: its signatures, and on devices that record the plan of each.
#pragma once

#include <any>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/recent.h"
#include "cohort/function.h"
#include "wings/function/tracing.h"
#include "wings/xla/record/function_recording.h"

namespace cohort {

// One recording.
struct FunctionPlan {
  std::shared_ptr<record::Plan> plan;
  std::any result;                  // the result, with undefined tensors
  std::vector<bool> requires_grad;  // of the result's tensors
};

// What was recorded for one signature whose sizes are all known, on one device.
struct FunctionPlans {
  std::mutex mutex;  // of all members
  // A part of a function may be other operations from call to call (an update that takes place in every second one
  // only), each of which has a recording. The one that ran last is first.
  std::vector<FunctionPlan> kept;
  // The last recording, if it left tensors behind.
  std::shared_ptr<record::Plan> left_tensors;
  int recordings = 0;  // how often the function was called for it
};

// Where a call takes place and what its arguments are.
struct FunctionArguments {
  Signature given;                                   // what came
  Signature signature;                               // the same, or what the input_signature has in its place
  std::vector<torch::Tensor> tensors;                // the defined ones; those that are described only are undefined
  std::vector<std::shared_ptr<const void>> objects;  // that the signature is of
  torch::Device device = torch::kCPU;                // where the function runs
  bool records = false;                              // whether that device records
  bool captures = false;                             // whether work of that device can be captured
  bool of_replicas = false;                          // whether there are per-replica values, so that it runs as it is
};

// Returns what a call's arguments are. InvalidArgument: they are on several devices that record. `name` is the
// function's.
FunctionArguments arguments_of(detail::FunctionCall& call, const std::string& name);
// Names argument i of the signature for messages: "argument 1.inputs[0]".
std::string place_of(detail::FunctionCall& call, std::size_t i);

class CapturedFunction;

namespace detail {

class FunctionState {
 public:
  FunctionState(FunctionOptions options, std::string key);

  void call(FunctionCall& call);
  ConcreteFunction concrete(FunctionCall& call);
  int64_t tracing_count() const;
  std::vector<std::string> signatures() const;
  void set_joint();

 private:
  void check(FunctionCall& call, FunctionArguments& arguments) const;
  void note_tracing(bool is_new, const std::string& difference) const;
  bool enter(const FunctionArguments& arguments, std::string& difference);
  void run_recorded(FunctionCall& call, const FunctionArguments& arguments);
  std::vector<torch::Tensor> run_plan(record::Plan& plan, const FunctionArguments& arguments) const;
  std::shared_ptr<const record::Program> program_for(FunctionCall& call, const FunctionArguments& arguments);
  FunctionPlan record(FunctionCall& call, const FunctionArguments& arguments) const;
  std::shared_ptr<FunctionPlans> plans_for(const FunctionArguments& arguments);
  FunctionPlan record_anew(FunctionCall& call, const FunctionArguments& arguments, FunctionPlans& plans) const;

  const FunctionOptions options_;
  std::shared_ptr<CapturedFunction> captured_;
  std::string key_;
  bool joint_ = false;
  mutable std::mutex mutex_;
  SignatureTable table_;
  std::vector<std::shared_ptr<const void>> kept_;  // objects of signatures
  // By the number of the device, and by what came.
  std::map<int, Recent<std::string, std::shared_ptr<FunctionPlans>>> plans_;
};

}  // namespace detail

class ConcreteFunctionState {
 public:
  std::string signature;
  std::string name;
  std::shared_ptr<const record::Program> program;  // null: there is none
  int device = 0;
  std::string why_none;  // the reason
};

}  // namespace cohort
