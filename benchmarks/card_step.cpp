// Training steps on one GPU, or on the CPU, as scripts/gpu_check measures them beside PyTorch's (its torch_step.py).
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/cuda.h>

#include <algorithm>
#include <initializer_list>
#include <iostream>
#include <optional>
#include <set>
#include <string_view>

#include "bench.h"
#include "cohort/compute.h"
#include "step.h"

namespace cohort::bench {

namespace {

constexpr int kStepsBetweenWaits = 10;
constexpr int kWarmUp = 10;
constexpr int kProfiled = 4;

// Calls of CUDA's run-time library and driver in a step, by their names in a profile.
struct CardCalls {
  double launches = 0;
  double waits = 0;
};

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view each) { return name.starts_with(each); });
}

// Returns the calls that a step makes, counted by LibTorch's profiler.
CardCalls calls_of(const std::function<void()>& step) {
  namespace profiler = torch::autograd::profiler;
  using torch::profiler::impl::ActivityType;
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  const std::set<ActivityType> activities = {ActivityType::CPU, ActivityType::CUDA};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  for (int i = 0; i < kProfiled; ++i) step();
  torch::cuda::synchronize(0);  // is counted, too
  const auto result = profiler::disableProfiler();
  CardCalls calls;
  for (const auto& event : result->events()) {
    const std::string name = event.name();
    if (is_one_of(name, {"cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch"})) ++calls.launches;
    if (is_one_of(name, {"cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"})) ++calls.waits;
  }
  return {.launches = calls.launches / kProfiled, .waits = (calls.waits - 1) / kProfiled};
}

struct StepTimes {
  double step = 0;  // seconds, of the step as a whole
  double host = 0;  // seconds until the call returns
};

// Waits for the device after each `together` steps.
StepTimes measure(double seconds, int together, const std::function<void()>& step, const std::function<void()>& wait) {
  std::vector<double> steps;
  std::vector<double> hosts;
  const double end = now() + seconds;
  while (now() < end || steps.size() < 3) {
    wait();
    const double begin = now();
    for (int i = 0; i < together; ++i) step();
    const double returned = now();
    wait();
    steps.push_back((now() - begin) / together);
    hosts.push_back((returned - begin) / together);
  }
  return {.step = median(std::move(steps)), .host = median(std::move(hosts))};
}

// Prints a line of figures, and then, on a GPU, a line that has those of the profiler, too, which may fail.
void report_times(const std::string& head, Step& step, const CardStepOptions& options, double seconds) {
  const auto wait = [&] {
    if (!options.on_cpu) torch::cuda::synchronize(0);
  };
  torch::Tensor loss;
  const auto once = [&] { loss = step(); };
  for (int i = 0; i < (options.on_cpu ? 1 : kWarmUp); ++i) once();
  const StepTimes times = measure(seconds, options.on_cpu ? 1 : kStepsBetweenWaits, once, wait);
  std::string figures = c10::str(head, ", \"us\": ", times.step * 1e6, ", \"host_us\": ", times.host * 1e6,
                                 ", \"loss\": ", loss.item<double>());
  if (!options.on_cpu) figures += c10::str(", \"peak_bytes\": ", memory_info("/GPU:0").peak);
  std::cout << figures << "}" << std::endl;
  if (options.on_cpu) return;
  const CardCalls calls = calls_of(once);
  std::cout << figures << ", \"launches\": " << calls.launches << ", \"waits\": " << calls.waits << "}\n";
}

}  // namespace

void run_card_step(const std::string& model, const CardStepOptions& options, double seconds) {
  torch::manual_seed(1);
  std::optional<ComputeScope> compute;
  if (!options.on_cpu) compute.emplace(ComputeOptions{.tensor_float_32 = options.precision == "tf32"});
  const std::string device = options.on_cpu ? "/CPU:0" : "/GPU:0";
  Step step(MirroredStrategy({.devices = {device}}), model,
            {.as_graph = options.graphs, .half = options.precision == "bf16", .size = options.batch});
  const std::string head =
      c10::str("{\"step\": \"", model, "\", \"batch\": ", options.batch, ", \"parameters\": ", step.parameters());
  if (seconds > 0) return report_times(head, step, options, seconds);
  std::cout << head << "}\n";
}

}  // namespace cohort::bench
