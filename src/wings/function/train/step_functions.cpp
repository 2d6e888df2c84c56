// The steps of a model as functions. What cannot be a function runs as it is, and is recorded in each step where the
// replicas' devices record their work. Where they capture it as graphs, the steps are functions if the program says so,
// and what cannot be captured is an error.
#include "wings/function/train/step_functions.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/access.h"
#include "base/columns.h"
#include "base/log.h"
#include "base/tracer.h"
#include "cohort/function.h"

namespace cohort {

namespace {

constexpr std::array kFunctionNames = {"train_step", "test_step", "predict_step"};

bool same_sizes(const Example& one, const Example& other) {
  const std::vector<torch::Tensor> a = columns_of(one);
  const std::vector<torch::Tensor> b = columns_of(other);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const torch::Tensor& x, const torch::Tensor& y) {
    if (!x.defined() || !y.defined()) return x.defined() == y.defined();
    return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes();
  });
}

class StepsAsFunctions {
 public:
  using Body = StepFunctions::Body;

  StepsAsFunctions(const Strategy& strategy, std::string speaker, bool records)
      : strategy_(strategy), speaker_(std::move(speaker)), records_(records) {}

  // As StepFunctions has them.
  void leave_out(StepKind kind);
  bool takes(StepKind kind, const GlobalBatch& batch);
  std::optional<PerReplica<NamedTensors>> run(StepKind kind, const GlobalBatch& batch, const Body& body,
                                              const std::shared_ptr<const void>& more);

 private:
  // The size of the global batch, by which replicas divide, is a part of the signature.
  using StepFunction =
      Function<std::function<NamedTensors(Replica&, const Example&, int64_t, bool, std::shared_ptr<const void>)>>;
  struct Step {
    std::optional<StepFunction> function;
    Body body;
    bool left_out = false;
  };

  Step& of(StepKind kind) { return steps_[static_cast<std::size_t>(kind)]; }

  Strategy strategy_;
  std::string speaker_;
  bool records_ = false;
  std::array<Step, 3> steps_;
};

void StepsAsFunctions::leave_out(StepKind kind) {
  of(kind) = {.function = {}, .body = {}, .left_out = true};
}

bool StepsAsFunctions::takes(StepKind kind, const GlobalBatch& batch) {
  if (functions_run_eagerly() || of(kind).left_out) return false;
  if (!records_) return true;
  // Where several processes share the batch, all of them come to the same answer.
  if (batch[0].size() * strategy_.num_replicas_in_sync() != batch.global_size()) return false;
  return std::all_of(batch.begin(), batch.end(), [&](const Example& share) { return same_sizes(batch[0], share); });
}

std::optional<PerReplica<NamedTensors>> StepsAsFunctions::run(StepKind kind, const GlobalBatch& batch, const Body& body,
                                                              const std::shared_ptr<const void>& more) {
  Step& step = of(kind);
  const std::string name = kFunctionNames[static_cast<std::size_t>(kind)];
  if (!step.function) {
    step.body = body;
    const auto call = [own = &step.body](Replica& replica, const Example& share, int64_t /*global_size*/,
                                         bool /*some_empty*/, const std::shared_ptr<const void>& /*more*/) {
      return (*own)(replica, share);
    };
    FunctionOptions options{.name = name};
    if (!records_) options.jit_compile = true;
    step.function.emplace(call, options);
    // Steps without sums over the replicas are one launch, too.
    detail::set_joint(*Access::state(*step.function));
  }
  try {
    return strategy_.run(
        [&step, &more, size = batch.global_size(), empty = batch.some_empty()](Replica& replica, const Example& share) {
          return (*step.function)(replica, share, size, empty, more);
        },
        batch);
  } catch (const NotTraceable& error) {
    if (!records_) throw;  // it was asked for
    log().warn("{}the {} cannot be a function (docs/functions.md) and is recorded in each step: {}", speaker_, name,
               error.what());
  }
  leave_out(kind);
  return std::nullopt;
}

}  // namespace

StepFunctions make_steps_as_functions(const Strategy& strategy, std::string speaker, bool records) {
  const auto own = std::make_shared<StepsAsFunctions>(strategy, std::move(speaker), records);
  return {.leave_out = [own](StepKind kind) { own->leave_out(kind); },
          .takes = [own](StepKind kind, const GlobalBatch& batch) { return own->takes(kind, batch); },
          .run = [own](StepKind kind, const GlobalBatch& batch, const StepFunctions::Body& body,
                       const std::shared_ptr<const void>& more) { return own->run(kind, batch, body, more); }};
}

}  // namespace cohort
