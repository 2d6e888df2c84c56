// StepFunctions: the steps of a model as functions (cohort/function.h), which are recorded once a signature and run
// again: Keras' train_function, test_function and predict_function. The wing function has them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cohort/distributed_dataset.h"
#include "cohort/strategy.h"

namespace cohort {

enum class StepKind { kTrain, kTest, kPredict };

// What the replicas do at the end of a training step, such as to follow the weights. A recording of the step has it as
// long as the token is the same.
struct AfterUpdate {
  std::shared_ptr<const void> token;
  std::function<void(const Replica&)> run;
};

struct StepFunctions {
  // The work of a replica on its share.
  using Body = std::function<NamedTensors(Replica&, const Example&)>;

  // Lets steps of that kind run as they are from now on.
  std::function<void(StepKind kind)> leave_out;

  // Returns whether the step on this batch is a function: nothing was left out, and where the replicas record their
  // work, all shares have the same sizes, because they are one program then.
  std::function<bool(StepKind kind, const GlobalBatch& batch)> takes;

  // Runs a step that takes() allows. Returns nothing, and leaves out the kind from now on, if the step does what cannot
  // be recorded, such as reading a value; nothing has been done then.
  // `more` is what the body does besides: another object is another signature.
  std::function<std::optional<PerReplica<NamedTensors>>(StepKind kind, const GlobalBatch& batch, const Body& body,
                                                        const std::shared_ptr<const void>& more)>
      run;
};

// `speaker` opens messages. `records`: the replicas' devices record their work; else they capture it as graphs.
struct StepFunctionsMaker {
  StepFunctions (*make)(const Strategy& strategy, std::string speaker, bool records);
};

// Makes the functions where the replicas' devices record their work, and with `jit_compile` also where they capture it.
// Nothing: steps run as they are. Unimplemented: jit_compile was asked for, and this build has no wing function.
std::optional<StepFunctions> make_step_functions(const Strategy& strategy, const std::string& speaker,
                                                 bool jit_compile = false);

}  // namespace cohort
