// Training steps, through the public interface.
#include <torch/cuda.h>

#include <functional>
#include <iostream>

#include "bench.h"
#include "cohort/cluster/multi_worker_strategy.h"
#include "cohort/cluster/xla_strategy.h"
#include "cohort/distributed_dataset.h"
#include "cohort/function.h"
#include "cohort/optimizer.h"

namespace cohort::bench {

namespace {

// One step over a batch that stays the same.
class Step {
 public:
  // `as_function`: the step is a cohort::function, which devices of XLA record once.
  Step(const Strategy& strategy, const std::string& model, bool as_function = false)
      : strategy_(strategy),
        size_(batch_per_replica(model)),
        net_(strategy.mirror([&] { return make_model(model); })),
        adam_(strategy.optimizer(net_, Adam({.learning_rate = 1e-3}))) {
    std::vector<Example> shares;
    for (const LogicalDevice& device : strategy.worker_devices()) {
      const Example share{.x = make_input(model, size_), .y = torch::randint(kClasses, {size_}, torch::kLong)};
      shares.push_back(share.to(device.torch_device));
    }
    batch_ = GlobalBatch(std::move(shares), size_ * strategy.num_replicas_in_sync());
    step_ = [this](Replica& replica, const torch::Tensor& x, const torch::Tensor& y) { return train(replica, x, y); };
    if (as_function) step_ = function(step_, {.name = "train"});
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  ~Step() = default;

  // Returns the loss of one replica, which may not have been computed yet.
  torch::Tensor operator()() {
    const auto losses =
        strategy_.run([&](Replica& replica, const Example& share) { return step_(replica, share.x, share.y); }, batch_);
    return strategy_.local_results(losses).front();
  }

  // `hidden`: the share of communication that ran under backward.
  void report(const std::string& model, double time, const std::vector<double>& hidden = {}) const {
    const int replicas = strategy_.num_replicas_in_sync();
    std::cout << "{\"step\": \"" << model << "\", \"replicas\": " << replicas << ", \"us\": " << time * 1e6
              << ", \"samples_per_second\": " << static_cast<double>(size_ * replicas) / time;
    const ExchangeTimeline last = adam_.exchange_timeline();
    if (!last.messages.empty()) {
      std::cout << ", \"hidden\": " << median(hidden) << ", \"backward_ms\": " << last.backward * 1e3
                << ", \"messages\": [";
      for (const auto& each : last.messages) {
        std::cout << (&each == last.messages.data() ? "" : ", ") << "[" << each.bytes << ", " << each.ready * 1e3
                  << ", " << each.begin * 1e3 << ", " << each.end * 1e3 << "]";
      }
      std::cout << "]";
    }
    std::cout << "}\n";
  }

  double hidden() const { return adam_.exchange_timeline().hidden(); }

 private:
  torch::Tensor train(Replica& replica, const torch::Tensor& x, const torch::Tensor& y) {
    const auto each = torch::nn::functional::cross_entropy(
        net_[replica]->forward(x), y, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
    const torch::Tensor loss = replica.global_mean(each);
    adam_[replica].minimize(loss);
    return loss.detach();
  }

  Strategy strategy_;
  int64_t size_;
  Mirrored<torch::nn::Sequential> net_;
  MirroredOptimizer adam_;
  GlobalBatch batch_;
  std::function<torch::Tensor(Replica&, const torch::Tensor&, const torch::Tensor&)> step_;
};

Strategy make_strategy(const StepDevices& devices) {
  if (!devices.xla_plugin.empty()) {
    return XlaStrategy({.plugin = devices.xla_plugin, .num_devices = devices.replicas});
  }
  std::vector<std::string> names = cpu_devices(devices.replicas);
  for (std::size_t i = 0; devices.gpus && i < names.size(); ++i) names[i] = "/GPU:" + std::to_string(i);
  return MirroredStrategy({.devices = names, .exchange = {.threads_per_replica = devices.threads}});
}

}  // namespace

void run_step(const std::string& model, const StepDevices& devices, double seconds) {
  torch::manual_seed(1);
  Step step(make_strategy(devices), model, !devices.xla_plugin.empty());
  step.report(model, median_time(seconds, [&] {
                const torch::Tensor loss = step();
                // Both wait for the whole step, of which the loss is a result.
                if (!devices.xla_plugin.empty()) (void)loss.cpu();
                for (int i = 0; devices.gpus && i < devices.replicas; ++i) torch::cuda::synchronize(i);
              }));
}

// All workers have to make as many steps: the first one says how many.
void run_worker_step(const std::string& model, double seconds, const WorkerOptions& worker) {
  torch::manual_seed(1);
  const MultiWorkerMirroredStrategy strategy(
      {.communication = {.overlap = worker.overlap, .shared_memory = worker.shared_memory},
       .devices = {"/CPU:0"},
       .sharding = {.stage = worker.sharding_stage}});
  Step step(strategy, model);
  std::vector<double> hidden;
  const auto timed = [&](int64_t steps) {
    std::vector<double> times;
    hidden.clear();
    for (int64_t i = 0; i < steps; ++i) {
      const double start = now();
      step();
      times.push_back(now() - start);
      hidden.push_back(step.hidden());
    }
    return median(times);
  };
  timed(3);
  const double trial = timed(5);
  const auto wait = std::chrono::minutes(1);
  const auto membership = strategy.membership();
  int64_t steps = static_cast<int64_t>(seconds / trial) + 5;
  if (membership && strategy.worker_rank() == 0) membership->put("steps", std::to_string(steps));
  if (membership) steps = std::stoll(membership->get("steps", wait));
  const double time = timed(steps);
  if (strategy.worker_rank() == 0) step.report(model, time, hidden);
}

// Returns when all workers are there and have exchanged something.
void run_worker_start() {
  const MultiWorkerMirroredStrategy strategy({.devices = {"/CPU:0"}});
  const auto ones = strategy.run([](Replica&) { return torch::ones({1}); });
  const double workers = strategy.reduce(ReduceOp::kSum, ones).item<double>();
  if (strategy.worker_rank() == 0) std::cout << "{\"worker_start\": " << workers << "}\n";
}

void run_empty(int replicas, double seconds) {
  const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
  constexpr int kRuns = 100;
  const double time = median_time(seconds, [&] {
    for (int i = 0; i < kRuns; ++i) strategy.run([](Replica&) {});
  });
  std::cout << "{\"empty_run\": " << replicas << ", \"us\": " << time / kRuns * 1e6 << "}\n";
}

}  // namespace cohort::bench
