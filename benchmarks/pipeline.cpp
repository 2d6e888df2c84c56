// The transformer as a pipeline of two stages, with a batch of 16, beside one thread and one replica of two threads. A
// thread that accumulates the gradients of the microbatches, one after the other, does what both stages do: its step
// over the pipeline's is what the schedule's formula is about.
#include <iostream>
#include <map>

#include "bench.h"
#include "cohort/distributed_dataset.h"
#include "cohort/optimizer.h"
#include "cohort/parallel/pipeline_strategy.h"
#include "cohort/trace.h"

namespace cohort::bench {

namespace {

constexpr int64_t kExamples = 16;
constexpr int kStages = 2;

// Returns the strategy of a schedule by its name, or of so many threads.
Strategy make_strategy(const std::string& name, int microbatches) {
  if (name == "1" || name == "accumulated")
    return MirroredStrategy({.devices = cpu_devices(1), .exchange = {.threads_per_replica = 1}});
  if (name == "2") return MirroredStrategy({.devices = cpu_devices(1), .exchange = {.threads_per_replica = 2}});
  const std::map<std::string, PipelineScheduleOptions> schedules = {
      {"gpipe", ScheduleGPipe{.microbatches = microbatches}},
      {"1f1b", Schedule1F1B{.microbatches = microbatches}},
      {"interleaved", ScheduleInterleaved{.microbatches = microbatches}},
      {"zero_bubble_h1", ScheduleZeroBubbleH1{.microbatches = microbatches}}};
  std::vector<std::string> cut = {"encoder_layer_2"};
  if (name == "interleaved") cut = {"encoder_layer_1", "encoder_layer_2", "encoder_layer_3"};
  return PipelineStrategy({.devices = cpu_devices(kStages),
                           .schedule = schedules.at(name),
                           .cut = cut,
                           .exchange = {.threads_per_replica = 1}});
}

}  // namespace

void run_pipeline(const std::string& schedule, int microbatches, double seconds) {
  torch::manual_seed(1);
  const Strategy strategy = make_strategy(schedule, microbatches);
  const auto net = strategy.mirror([] { return make_model("transformer"); });
  const int calls = schedule == "accumulated" ? microbatches : 1;
  const MirroredOptimizer adam =
      strategy.optimizer(net, Adam({.learning_rate = 1e-3, .gradient = {.gradient_accumulation_steps = calls}}));
  const int64_t rows = kExamples / calls;
  const GlobalBatch batch(
      {Example{.x = make_input("transformer", rows), .y = torch::randint(kClasses, {rows}, torch::kLong)}}, rows);
  const auto step = [&] {
    for (int call = 0; call < calls; ++call) {
      strategy.run(
          [&](Replica& replica, const Example& part) {
            const torch::Tensor losses = torch::nn::functional::cross_entropy(
                net[replica]->forward(part.x), part.y,
                torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
            adam[replica].minimize(replica.global_mean(losses));
          },
          batch);
    }
  };
  const double time = median_time(seconds, step);
  std::cout << "{\"pipeline\": \"" << schedule << "\", \"microbatches\": " << microbatches << ", \"us\": " << time * 1e6
            << ", \"samples_per_second\": " << kExamples / time;
  Trace trace({.file = {}});
  constexpr int kTraced = 3;
  for (int i = 0; i < kTraced; ++i) step();
  const TraceSummary summary = trace.finish();
  double work = 0.0;
  for (const auto& [thread, seconds_of] : summary.seconds_of) {
    const auto own = seconds_of.find("compute");
    if (own != seconds_of.end()) work += own->second;
  }
  std::cout << ", \"idle\": " << 1.0 - work / (summary.seconds * kStages) << "}\n";
}

}  // namespace cohort::bench
