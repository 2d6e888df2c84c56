// The code that the benchmarks share. Each prints one JSON object a line.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/models/zoo.h"

namespace cohort::bench {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What steps are timed by: COHORT_BENCH_CLOCK=processor takes the processor time of all threads of the process, which
// other programs do not lengthen, where it has one core.
inline double clock_of_steps() {
  static const char* const name = std::getenv("COHORT_BENCH_CLOCK");
  static const bool processor = name != nullptr && std::string_view(name) == "processor";
  return processor ? static_cast<double>(std::clock()) / CLOCKS_PER_SEC : now();
}

inline double median(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// Seconds of each call, of calls that together take about `seconds`.
inline std::vector<double> times_of(double seconds, const std::function<void()>& call) {
  for (int i = 0; i < 5; ++i) call();
  std::vector<double> times;
  const double end = now() + seconds;
  while (now() < end || times.size() < 5) {
    const double start = clock_of_steps();
    call();
    times.push_back(clock_of_steps() - start);
  }
  return times;
}

// The median of them.
inline double median_time(double seconds, const std::function<void()>& call) {
  return median(times_of(seconds, call));
}

// The vision transformers "transformer" and "block".
models::VisionTransformerOptions transformer(const std::string& name);
// A module as a user brings it: "mlp", "cnn", "resnet50", "vit_tiny", "transformer", "block", "decoder" or "unet"; and
// of the sizes that fill a GPU "resnet50_224", "resnet50_224_last" (channels last), "vit_b" and "decoder_100m". Its
// outputs have the classes in dimension 1.
torch::nn::Sequential make_model(const std::string& name);
// A batch of its input, and the labels that are wanted for it.
torch::Tensor make_input(const std::string& name, int64_t size);
torch::Tensor make_labels(const std::string& name, int64_t size);
int64_t batch_per_replica(const std::string& name);
constexpr int64_t kClasses = 10;

// What the steps run on.
struct StepDevices {
  int replicas = 2;
  int model_parallel = 1;       // CPUs that share the parameters of a replica
  int threads = 1;              // a replica on the CPU; 0: the cores divided by the replicas
  bool gpus = false;            // one a replica
  bool graphs = false;          // the steps are graphs of the GPUs
  std::string xla_plugin = "";  // the devices of this plugin, one a replica
};

void run_step(const std::string& model, const StepDevices& devices, double seconds);
struct CardStepOptions {
  std::string precision = "fp32";  // fp32, tf32 or bf16 (autocast)
  int64_t batch = 64;              // examples
  bool graphs = false;             // the steps are graphs of the GPU
  bool on_cpu = false;             // the CPU instead of a GPU
};
// A step on one GPU: its time and the host's, the peak of memory, launches and waits. With 0 seconds no step is made,
// and the model has its parameters counted.
void run_card_step(const std::string& model, const CardStepOptions& options, double seconds);
// The options of a worker's strategy.
struct WorkerOptions {
  std::optional<bool> overlap;
  bool shared_memory = true;
  int sharding_stage = 0;
  std::string axis = "";       // "model", "sequence" or "space": what the workers divide in place of the batch
  std::string interface = "";  // whose bytes are counted; empty: none are
};

void run_worker_step(const std::string& model, double seconds, const WorkerOptions& worker);
// Where the time of a step goes; profile_step.py makes a table of it.
void run_profile(const std::string& model, int replicas, double seconds);
// fit() beside a bare run, `together` steps an execution.
void run_fit(int replicas, int64_t together, double seconds);
// A schedule ("1f1b", ...) on two stages of a thread each, or a number of threads of one replica.
void run_pipeline(const std::string& schedule, int microbatches, double seconds);
void run_empty(int replicas, double seconds);
void run_all_reduce(double seconds);
void run_worker_all_reduce(const std::string& algorithm);
// All-reduce, reduce-scatter and all-gather by a back end between workers.
void run_worker_collectives(const std::string& implementation);
void run_calls_server(const std::string& address);  // until its standard input ends
void run_calls(const std::string& address, double seconds);
void run_input(double seconds);
void run_images(const std::string& folder, int threads);
void run_tfrecord();
void run_precision(double seconds);
void run_space(int parts, int64_t filters, double seconds);
void run_checkpoint();
void run_worker_start();
void run_recording(const std::string& model, double seconds);
void run_launch(const std::string& plugin, int launches);
void run_parameter_server(const std::string& what, double seconds);
// Asynchronous training beside TensorFlow's parameter servers.
void run_server_mlp(double seconds);
void run_server_bag(double seconds);

}  // namespace cohort::bench
