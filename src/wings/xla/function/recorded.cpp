// Calls on a device that records: the first call of a signature records the function and runs what it recorded, later
// ones run that again.
#include "wings/xla/function/recorded.h"

#include <algorithm>
#include <any>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/log.h"
#include "strategy/context.h"
#include "wings/function/visitors.h"
#include "wings/xla/base/recent.h"
#include "wings/xla/record/function_recording.h"
#include "wings/xla/record/recorder.h"
#include "wings/xla/record/stablehlo/lower.h"
#include "wings/xla/step/step_in_recording.h"

namespace cohort {

namespace {

constexpr int kManyRecordings = 5;
// So many recordings of one signature are kept.
constexpr std::size_t kMostKept = 4;

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

// Puts the recording that does what the call does now first, with the numbers of this run. Returns false if there is
// none. Gives up those whose tensors are gone.
bool make_current(std::vector<FunctionPlan>& plans) {
  const auto is_gone = [](const FunctionPlan& each) { return !each.plan->is_current(); };
  plans.erase(std::remove_if(plans.begin(), plans.end(), is_gone), plans.end());
  for (auto each = plans.begin(); each != plans.end(); ++each) {
    if (!each->plan->renew_numbers()) continue;
    std::rotate(plans.begin(), each, each + 1);
    return true;
  }
  return false;
}

// Writes to the arguments of the host what a run has written to their copies on the device.
void write_back(const record::Plan& plan, const std::vector<torch::Tensor>& arguments,
                const std::vector<torch::Tensor>& given) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!plan.writes_argument(i) || arguments[i].device() == given[i].device()) continue;
    torch::Tensor(arguments[i]).copy_(given[i]);
  }
}

class RecordedProgram final : public FunctionProgram {
 public:
  RecordedProgram(std::shared_ptr<const record::Program> program, int device)
      : program_(std::move(program)), device_(device) {}

  std::string text(const std::string& name) const override {
    return record::to_stablehlo(*program_, {.name = name, .precision = record::matmul_precision()});
  }
  std::optional<FunctionCost> cost() const override {
    const std::shared_ptr<record::GraphRunner> runs = record::runner();
    if (runs == nullptr) return std::nullopt;
    const record::ProgramCost cost = runs->cost(program_, device_);
    return FunctionCost{.flops = cost.flops, .bytes_accessed = cost.bytes_accessed, .peak_bytes = cost.peak_bytes};
  }

 private:
  std::shared_ptr<const record::Program> program_;
  int device_;
};

class FunctionOnXla final : public RecordedFunction {
 public:
  explicit FunctionOnXla(const FunctionOptions& options) : options_(options) {}

  void call(detail::FunctionCall& call, const FunctionArguments& arguments, bool joint) override;
  std::shared_ptr<const FunctionProgram> program(detail::FunctionCall& call,
                                                 const FunctionArguments& arguments) override {
    return std::make_shared<RecordedProgram>(program_for(call, arguments), std::max<int>(0, arguments.device.index()));
  }

 private:
  std::vector<torch::Tensor> run_plan(record::Plan& plan, const FunctionArguments& arguments, bool joint) const;
  std::shared_ptr<const record::Program> program_for(detail::FunctionCall& call, const FunctionArguments& arguments);
  FunctionPlan record(detail::FunctionCall& call, const FunctionArguments& arguments) const;
  std::shared_ptr<FunctionPlans> plans_for(const FunctionArguments& arguments);
  FunctionPlan record_anew(detail::FunctionCall& call, const FunctionArguments& arguments, FunctionPlans& plans) const;

  const FunctionOptions& options_;
  std::mutex mutex_;
  // By the number of the device, and by what came.
  std::map<int, Recent<std::string, std::shared_ptr<FunctionPlans>>> plans_;
};

FunctionPlan FunctionOnXla::record(detail::FunctionCall& call, const FunctionArguments& arguments) const {
  record::FunctionRecording trace(record::recording_of(arguments.device), "the function " + options_.name,
                                  &steps_in_recordings());
  std::vector<torch::Tensor> standing;
  for (const ArgumentType& type : arguments.given.arguments) {
    if (!type.is_tensor || type.dtype == torch::ScalarType::Undefined) continue;
    standing.push_back(trace.argument({type.dtype, *type.shape}, type.requires_grad));
  }
  {
    const detail::Substituted substituted(call, arguments.tensors, standing);
    call.run();
  }
  detail::Taker result;
  call.visit_result(result);
  FunctionPlan made;
  made.result = call.result();
  for (const torch::Tensor& tensor : result.taken)
    made.requires_grad.push_back(tensor.defined() && tensor.requires_grad());
  made.plan = trace.finish(std::move(result.taken));
  return made;
}

std::shared_ptr<const record::Program> FunctionOnXla::program_for(detail::FunctionCall& call,
                                                                  const FunctionArguments& arguments) {
  if (!arguments.given.is_static()) {
    fail<FailedPrecondition>("[function] ", options_.name, "(", to_string(arguments.given),
                             ") has sizes that are not known, but programs of ", arguments.device,
                             " are of one size; give the sizes");
  }
  const std::shared_ptr<FunctionPlans> plans = plans_for(arguments);
  const std::scoped_lock lock(plans->mutex);
  if (!plans->kept.empty()) return plans->kept.front().plan->program();
  const FunctionPlan made = record(call, arguments);
  made.plan->settle_left_tensors();
  if (!made.plan->leaves_tensors()) plans->kept.push_back(made);
  return made.plan->program();
}

// Returns what was recorded for the arguments, which counts as used now.
std::shared_ptr<FunctionPlans> FunctionOnXla::plans_for(const FunctionArguments& arguments) {
  const std::string key = to_key(arguments.given);
  const std::scoped_lock lock(mutex_);
  auto& of_device = plans_[arguments.device.index()];
  if (const auto* const known = of_device.find(key)) return *known;
  return of_device.put(key, std::make_shared<FunctionPlans>(), static_cast<std::size_t>(options_.kept_signatures));
}

// Runs the plan; one with sums over the replicas when all of them have come.
std::vector<torch::Tensor> FunctionOnXla::run_plan(record::Plan& plan, const FunctionArguments& arguments,
                                                   bool joint) const {
  struct Mine {
    record::Plan& plan;
    std::vector<torch::Tensor> given;
    std::vector<torch::Tensor> results;
  };
  try {
    Mine mine{plan, {}, {}};
    for (const torch::Tensor& tensor : arguments.tensors) mine.given.push_back(tensor.detach().to(arguments.device));
    const bool alone = thread_context().replica == nullptr;
    if (!plan.has_sums() && !(joint && !alone)) {
      mine.results = plan.run(mine.given);
      plan.settle();
      write_back(plan, arguments.tensors, mine.given);
      return std::move(mine.results);
    }
    if (alone) {
      fail<FailedPrecondition>("[function] ", options_.name,
                               " sums over the replicas, but was called outside of Strategy::run()");
    }
    const auto launch = [](std::span<void* const> all) {
      std::vector<record::Plan*> plans;
      std::vector<std::vector<torch::Tensor>> given;
      for (void* const each : all) {
        plans.push_back(&static_cast<Mine*>(each)->plan);
        given.push_back(static_cast<Mine*>(each)->given);
      }
      std::vector<std::vector<torch::Tensor>> results = record::Plan::run_together(plans, given);
      for (std::size_t r = 0; r < all.size(); ++r) static_cast<Mine*>(all[r])->results = std::move(results[r]);
    };
    meet_replicas("the function " + options_.name, &mine, launch);
    plan.settle();
    write_back(plan, arguments.tensors, mine.given);
    return std::move(mine.results);
  } catch (...) {
    plan.undo_numbers();
    throw;
  }
}

// Records the function, and keeps the recording unless the next call will find tensors that this one has left. If this
// call has found those of the one before, and leaves others nevertheless, so does the next one.
FunctionPlan FunctionOnXla::record_anew(detail::FunctionCall& call, const FunctionArguments& arguments,
                                        FunctionPlans& plans) const {
  if (++plans.recordings == kManyRecordings) {
    cohort::log().warn(
        "[function] {}({}) is recorded for the {}th time, because tensors that it had read or left were gone, or its "
        "update was other operations: write into tensors in place, and reset gradients at its end (docs/functions.md)",
        options_.name, to_string(arguments.given), plans.recordings);
  }
  const bool found_left = plans.left_tensors != nullptr && plans.left_tensors->is_current();
  FunctionPlan made = record(call, arguments);
  const bool leaves = made.plan->leaves_tensors();
  if (!leaves || found_left) plans.kept.insert(plans.kept.begin(), made);
  if (plans.kept.size() > kMostKept) plans.kept.pop_back();
  plans.left_tensors = leaves ? made.plan : nullptr;
  if (!made.plan->renew_numbers()) {
    fail<Internal>("[function] ", options_.name, " records something else when it comes again");
  }
  return made;
}

void FunctionOnXla::call(detail::FunctionCall& call, const FunctionArguments& arguments, bool joint) {
  if (record::FunctionRecording::is_tracing()) return call.run();
  const std::shared_ptr<FunctionPlans> plans = plans_for(arguments);
  FunctionPlan plan;
  {
    const std::scoped_lock lock(plans->mutex);
    plan = make_current(plans->kept) ? plans->kept.front() : record_anew(call, arguments, *plans);
  }
  std::vector<torch::Tensor> results = run_plan(*plan.plan, arguments, joint);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (plan.requires_grad[i]) detail::end_gradients(results[i], options_.name, arguments.device);
  }
  call.set_result(plan.result);
  detail::Giver giver(std::move(results));
  call.visit_result(giver);
}

}  // namespace

std::unique_ptr<RecordedFunction> make_function_on_xla(const FunctionOptions& options) {
  return std::make_unique<FunctionOnXla>(options);
}

}  // namespace cohort
