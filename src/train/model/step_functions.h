// StepFunctions: the steps of a model as functions (cohort/function.h), which are recorded once a signature and run
// again: Keras' train_function, test_function and predict_function. What cannot be a function runs as it is, and is
// recorded in each step where the replicas' devices record their work. Where they capture it as graphs, the steps are
// functions if the program says so, and what cannot be captured is an error.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cohort/distributed_dataset.h"
#include "cohort/function.h"
#include "cohort/strategy.h"

namespace cohort {

enum class StepKind { kTrain, kTest, kPredict };

// What the replicas do at the end of a training step, such as to follow the weights. A recording of the step has it as
// long as the token is the same.
struct AfterUpdate {
  std::shared_ptr<const void> token;
  std::function<void(const Replica&)> run;
};

class StepFunctions {
 public:
  // The work of a replica on its share.
  using Body = std::function<NamedTensors(Replica&, const Example&)>;

  // `speaker` opens messages. With `jit_compile` steps are functions also where the devices do not record.
  StepFunctions(const Strategy& strategy, std::string speaker, bool jit_compile = false);

  // Lets steps of that kind run as they are from now on.
  void leave_out(StepKind kind);

  // Returns whether the step on this batch is a function: nothing was left out, and where the replicas record their
  // work, all shares have the same sizes, because they are one program then.
  bool takes(StepKind kind, const GlobalBatch& batch);

  // Runs a step that takes() allows. Returns nothing, and leaves out the kind from now on, if the step does what cannot
  // be recorded, such as reading a value; nothing has been done then.
  // `more` is what the body does besides: another object is another signature.
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
  bool captures_ = false;
  std::array<Step, 3> steps_;
};

}  // namespace cohort
