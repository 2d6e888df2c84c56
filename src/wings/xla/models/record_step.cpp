#include "wings/xla/models/record_step.h"

#include <c10/util/accumulate.h>

#include "base/fail.h"
#include "models/run/plan.h"
#include "wings/xla/record/absent_runner.h"
#include "wings/xla/record/loop.h"
#include "wings/xla/record/stablehlo/lower.h"
#include "wings/xla/strategy/absent.h"

namespace cohort {

namespace {

// Every replica has the same program, so one replica's share says it.
Example share_of(const Example& batch, int num_replicas) {
  if (num_replicas < 1 || batch.size() % num_replicas != 0) {
    fail<InvalidArgument>("[compile] a global batch of ", batch.size(), " is for ", num_replicas,
                          " replica(s), wanted a batch that they can share alike");
  }
  return batch.rows(0, batch.size() / num_replicas);
}

// Makes a loop of the step: what a step writes where it was read (variables, slots, metrics, random states) goes from
// step to step, everything else comes anew.
std::shared_ptr<const record::Program> looped(const std::shared_ptr<const record::Program>& step, int64_t steps) {
  if (steps == 1) return step;
  record::Loop loop{.body = step, .most = steps};
  loop.feeds.resize(step->inputs().size(), {.kind = record::Feed::Kind::kFresh});
  const std::vector<int>& aliases = step->aliases();
  for (std::size_t output = 0; output < aliases.size(); ++output) {
    if (aliases[output] < 0) continue;
    loop.feeds[static_cast<std::size_t>(aliases[output])] = {.kind = record::Feed::Kind::kCarried,
                                                             .output = static_cast<int>(output)};
  }
  return record::make_loop(loop);
}

}  // namespace

RecordedStep record_step(const ExperimentConfig& experiment, int num_replicas, int64_t steps) {
  if (steps < 1) fail<InvalidArgument>("[compile] a loop of ", steps, " steps, wanted 1 or more");
  const bool as_function = !experiment.runtime.run_eagerly && experiment.trainer.train_tf_function;
  if (!experiment.runtime.loss_scale->empty() && (steps > 1 || !as_function)) {
    fail<Unimplemented>("[compile] runtime.loss_scale is ", experiment.runtime.loss_scale, ": the host decides ",
                        as_function ? "after each such step whether there was an update, so that they are no loop"
                                    : "in the middle of a step that is run eagerly, so that it is no single program");
  }
  const record::MatmulPrecision precision =
      record::find_matmul_precision(*experiment.runtime.matmul_precision, "runtime.matmul_precision");
  const std::vector<int64_t> dims = experiment.task->input_partition_dims(/*training=*/true);
  const auto num_cores = static_cast<int>(c10::multiply_integers(dims));
  const Strategy strategy = absent_strategy(record::make_absent_runner(), dims);
  const auto scope = strategy.scope();
  Task& task = *experiment.task;
  const Example batch = task.example_batch();
  if (!batch.input().defined()) {
    fail<InvalidArgument>(
        "[compile] the experiment's task does not tell what its batches look like, wanted one with "
        "Task::example_batch()");
  }
  const Example share = share_of(batch, num_replicas);
  const RunPlan plan = plan_run(experiment.trainer, {.steps_per_epoch = 1}, /*trains=*/true);
  Model model = task.build_model();
  task.before_stage(0, model);
  model.compile(plan_compile(experiment, plan, num_replicas, 0));
  try {
    model.train_on_batch(share);
  } catch (const record::StepRecorded& step) {
    return {.text = record::to_stablehlo(
                *looped(step.program(), steps),
                {.num_replicas = num_replicas, .num_cores = num_cores, .name = "train_step", .precision = precision}),
            .num_cores = num_cores,
            .global_batch = batch.size()};
  }
  fail<Internal>("[compile] a training step ended without a sum over the replicas");
}

}  // namespace cohort
