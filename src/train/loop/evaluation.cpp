// Evaluations, predictions and the following of another process' checkpoints: loops that train nothing.
#include <ATen/Functions.h>

#include <chrono>

#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "strategy/absent.h"
#include "strategy/steps_together.h"
#include "train/loop/loop.h"
#include "train/model/kept_modes.h"

namespace cohort {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kInterrupt = 1;  // raised by a worker

// Calls fn for every batch. Returns the number of batches; nullopt if it was interrupted.
template <typename Fn>
std::optional<int64_t> for_each_batch(const DistributedDataset& data, int64_t steps,
                                      const std::function<bool()>& interrupt, const Fn& fn) {
  DistributedIterator iterator = data.iterator({.epoch = 0});
  int64_t step = 0;
  for (; steps == 0 || step < steps; ++step) {
    if (interrupt && interrupt()) iterator.raise(kInterrupt);
    const std::optional<GlobalBatch> batch = iterator.next();
    if ((iterator.raised() & kInterrupt) != 0) return std::nullopt;
    if (!batch) break;
    fn(*batch, step);
  }
  return step;
}

// Returns each output for a whole global batch, on the CPU, in the order of the examples: batches are cut into pieces
// that the first replicas of all workers take in turn, then the second ones, and so on.
NamedTensors gathered(const Strategy& strategy, const PerReplica<NamedTensors>& shares) {
  NamedTensors whole = shares[0];
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::vector<torch::Tensor> pieces;
    for (std::size_t turn = 0; turn < shares.size(); ++turn) {
      std::vector<torch::Tensor> parts;
      for (std::size_t replica = 0; replica < shares.size(); ++replica) {
        const torch::Tensor output = zeros_if_absent(shares[replica].at(i).second);
        parts.push_back(replica == turn ? output : output.narrow(0, 0, 0));
      }
      pieces.push_back(strategy.gather(PerReplica<torch::Tensor>(std::move(parts)), 0).cpu());
    }
    whole[i].second = pieces.size() == 1 ? pieces.front() : at::cat(pieces, 0);
  }
  return whole;
}

// Tells listeners of the batches of an evaluation or a prediction: of several at once, where they are one launch.
class BatchMoments {
 public:
  BatchMoments(const Listeners* listeners, RunInfo* run, int64_t together)
      : listeners_(listeners), run_(run), together_(together) {}

  void begin(int64_t step, Moment moment) const {
    if (listeners_ == nullptr || step % together_ != 0) return;
    run_->batch = step;
    listeners_->tell(moment);
  }
  // To be called after each step, and with `last` after the last one. `launch` has what was made computed.
  template <typename Launch, typename Tell>
  void end(int64_t done, bool last, const Launch& launch, const Tell& tell) const {
    if (listeners_ == nullptr || last == (done % together_ == 0)) return;
    launch();
    run_->batch = done - 1;
    tell();
  }

 private:
  const Listeners* listeners_;
  RunInfo* run_;
  int64_t together_;
};

void require_finite(const ModelState& state, std::string_view what, const DistributedDataset& data, int64_t steps) {
  if (steps < 0)
    fail<InvalidArgument>("[model] ", state.name(), ": ", what, ": steps must not be negative, got ", steps);
  if (steps > 0 || data.cardinality() != kInfiniteCardinality) return;
  fail<InvalidArgument>("[model] ", state.name(), ": ", what, ": the dataset never ends; say how many steps to take");
}

}  // namespace

std::optional<Logs> evaluate_on(ModelState& state, const DistributedDataset& data, const EvaluationRun& evaluation) {
  require_finite(state, "evaluate", data, evaluation.steps);
  RunInfo& run = *evaluation.run;
  if (evaluation.listeners != nullptr) evaluation.listeners->tell(Moment::kEvaluationBegin);
  const int64_t known = data.cardinality();
  const int64_t steps = evaluation.steps > 0 && known >= 0 ? std::min(evaluation.steps, known)
                        : evaluation.steps > 0             ? evaluation.steps
                                                           : known;
  if (evaluation.progress != nullptr) evaluation.progress->begin(evaluation.title, std::max<int64_t>(steps, -1));
  const auto start = Clock::now();
  int64_t examples = 0;
  StrategyCore& core = *Access::core(state.strategy());
  StepsTogether launches(core, state.steps_per_execution());
  std::optional<KeptModes> modes;
  const BatchMoments moments(evaluation.listeners, &run, state.steps_per_execution());
  const BatchLogs batch_logs([&] { return state.local_results(); }, [&] { return state.local_loss(); });
  const auto tell_end = [&](int64_t done, bool last) {
    moments.end(
        done, last, [&] { launches.begin(); },
        [&] { evaluation.listeners->tell_step_end(batch_logs, Moment::kTestStepEnd); });
  };
  const int64_t batch_of_training = run.batch;
  const auto take = [&](const GlobalBatch& batch, int64_t step) {
    if (step == 0) {
      state.build_from(batch[0]);
      modes.emplace(state.module());
      state.begin_evaluation();
      state.reset_metrics();
    }
    moments.begin(step, Moment::kTestStepBegin);
    if (step % state.steps_per_execution() == 0) launches.announce();
    state.test_step(batch);
    examples += batch.global_size();
    tell_end(step + 1, /*last=*/false);
    if (evaluation.progress != nullptr) {
      evaluation.progress->update(
          batch.global_size(), [&] { return state.local_results(); }, /*may_draw=*/core.gathered_steps() == 0);
    }
  };
  const std::optional<int64_t> done = for_each_batch(data, evaluation.steps, evaluation.interrupt, take);
  if (!done) return std::nullopt;
  launches.begin();
  if (*done == 0) fail<InvalidArgument>("[model] ", state.name(), ": evaluate: the dataset is empty");
  tell_end(*done, /*last=*/true);
  run.batch = batch_of_training;
  Logs logs = state.results();
  const std::chrono::duration<double> spent = Clock::now() - start;
  run.examples_per_second = static_cast<double>(examples) / spent.count();
  if (evaluation.progress != nullptr) evaluation.progress->finish(logs);
  modes.reset();
  if (evaluation.listeners != nullptr) evaluation.listeners->tell(Moment::kEvaluationEnd, logs);
  return logs;
}

NamedTensors run_predict(Model& model, ModelState& state, const Dataset& data, const PredictOptions& options) {
  const DistributedDataset batches = state.strategy().distribute(data, options.input);
  require_finite(state, "predict", batches, options.steps);
  std::vector<NamedTensors> outputs;
  std::vector<PerReplica<NamedTensors>> held;  // those of the steps that are one launch: reading one begins it
  StepsTogether launches(*Access::core(state.strategy()), state.steps_per_execution());
  const auto take_held = [&] {
    launches.begin();
    for (const PerReplica<NamedTensors>& shares : held) outputs.push_back(gathered(state.strategy(), shares));
    held.clear();
  };
  RunInfo run{.model = model, .epochs = state.epochs_done, .step = state.iterations()};
  Listeners listeners(kCallbacks);
  for (const CallbackPtr& each : options.callbacks) listeners.add(each, run);
  const BatchMoments moments(&listeners, &run, state.steps_per_execution());
  const auto tell_end = [&](int64_t done, bool last) {
    moments.end(done, last, take_held, [&] { listeners.tell(Moment::kPredictStepEnd); });
  };
  listeners.tell(Moment::kPredictBegin);
  std::optional<KeptModes> modes;
  const auto done = for_each_batch(batches, options.steps, {}, [&](const GlobalBatch& batch, int64_t step) {
    if (step == 0) {
      state.build_from(batch[0]);
      modes.emplace(state.module());
      state.begin_evaluation();
    }
    moments.begin(step, Moment::kPredictStepBegin);
    if (step % state.steps_per_execution() == 0) launches.announce();
    held.push_back(state.predict_step(batch));
    tell_end(step + 1, /*last=*/false);
  });
  tell_end(*done, /*last=*/true);
  if (outputs.empty()) fail<InvalidArgument>("[model] ", state.name(), ": predict: the dataset is empty");
  NamedTensors whole = std::move(outputs.front());
  for (std::size_t i = 0; i < whole.size() && outputs.size() > 1; ++i) {
    std::vector<torch::Tensor> parts = {whole[i].second};
    for (std::size_t batch = 1; batch < outputs.size(); ++batch) parts.push_back(outputs[batch].at(i).second);
    whole[i].second = at::cat(parts, 0);
  }
  modes.reset();
  listeners.tell(Moment::kPredictEnd);
  return whole;
}

int64_t evaluate_checkpoints(CheckpointFollower& checkpoints, const std::string& speaker,
                             const std::function<void(const std::filesystem::path&)>& load,
                             const std::function<bool()>& evaluate) {
  int64_t done = 0;
  while (const auto checkpoint = checkpoints.next()) {
    try {
      load(*checkpoint);
    } catch (const NotFound&) {  // the writer keeps few
      if (std::filesystem::exists(*checkpoint)) throw;
      continue;
    } catch (const DataLoss& error) {
      if (std::filesystem::exists(*checkpoint))
        log().warn("{} {} is damaged and left out: {}", speaker, checkpoint->string(), error.what());
      continue;
    }
    ++done;
    if (!evaluate()) break;
  }
  return done;
}

}  // namespace cohort
