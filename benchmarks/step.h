// The training step that the benchmarks measure, through the public interface.
#pragma once

#include <algorithm>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "base/libtorch_compat.h"
#include "bench.h"
#include "cohort/cluster/xla_strategy.h"
#include "cohort/distributed_dataset.h"
#include "cohort/function.h"
#include "cohort/models/layouts.h"
#include "cohort/optimizer.h"
#include "cohort/parallel/mesh_strategy.h"
#include "cohort/train/losses.h"

namespace cohort::bench {

struct StepOptions {
  bool as_function = false;             // the step is a cohort::function, which devices of XLA record once
  bool as_graph = false;                // it is a graph of the GPU
  bool half = false;                    // the forward pass runs under autocast, in bfloat16
  int64_t size = 0;                     // examples of a replica; 0: as many as the model's other steps have
  std::vector<int64_t> partition = {};  // the parts of the input in each dimension; empty: it is whole
};

// One step over a batch that stays the same.
class Step {
 public:
  Step(const Strategy& strategy, const std::string& model, StepOptions options = {})
      : strategy_(strategy),
        size_(options.size > 0 ? options.size : batch_per_replica(model)),
        half_(options.half),
        partition_(std::move(options.partition)),
        net_(strategy.mirror([&] { return make_model(model); })),
        adam_(strategy.optimizer(net_, Adam({.learning_rate = 1e-3}))) {
    std::vector<Example> shares;
    const std::vector<LogicalDevice>& devices = strategy.worker_devices();
    // Devices that share the parameters of a replica take the same share of the batch.
    const std::size_t line = std::max<std::size_t>(1, devices.size() / strategy.num_replicas_in_sync());
    Example share;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (i % line == 0) share = {.x = make_input(model, size_), .y = make_labels(model, size_)};
      shares.push_back(share.to(devices[i].torch_device));
    }
    batch_ = GlobalBatch(std::move(shares), size_ * strategy.num_replicas_in_sync());
    step_ = [this](Replica& replica, const torch::Tensor& x, const torch::Tensor& y) { return train(replica, x, y); };
    if (options.as_function) step_ = function(step_, {.name = "train"});
    if (options.as_graph) step_ = function(step_, {.name = "train", .jit_compile = true});
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

  // `times`: seconds of each step; `hidden`: the share of communication that ran under backward.
  void report(const std::string& model, std::vector<double> times, const std::vector<double>& hidden = {}) const {
    const double least = *std::min_element(times.begin(), times.end());
    const double time = median(std::move(times));
    const int replicas = strategy_.num_replicas_in_sync();
    std::cout << "{\"step\": \"" << model << "\", \"replicas\": " << replicas << ", \"us\": " << time * 1e6
              << ", \"least_us\": " << least * 1e6
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

  // Returns the number of parameters that a replica has.
  int64_t parameters() const {
    int64_t count = 0;
    for (const torch::Tensor& parameter : net_[0]->parameters()) count += parameter.numel();
    return count;
  }

 private:
  torch::Tensor train(Replica& replica, torch::Tensor x, torch::Tensor y) {
    if (!partition_.empty()) {
      x = strategy_.experimental_split_to_logical_devices(x, partition_);
      std::vector<int64_t> of_labels = partition_;
      if (y.dim() < x.dim()) of_labels.erase(of_labels.begin() + 1);  // the dimension of the classes
      y = strategy_.experimental_split_to_logical_devices(y, of_labels);
    }
    const torch::Tensor loss = loss_.share(replica, y, forward(replica, x)).value;
    adam_[replica].minimize(loss);
    return loss.detach();
  }

  torch::Tensor forward(Replica& replica, const torch::Tensor& x) {
    if (!half_) return net_[replica]->forward(x);
    const compat::Autocast autocast(x.device().type(), torch::kBFloat16);
    return net_[replica]->forward(x).to(torch::kFloat);
  }

  Strategy strategy_;
  int64_t size_;
  bool half_;
  std::vector<int64_t> partition_;
  Mirrored<torch::nn::Sequential> net_;
  MirroredOptimizer adam_;
  Loss loss_ = SparseCategoricalCrossentropy({.from_logits = true, .axis = 1});
  GlobalBatch batch_;
  std::function<torch::Tensor(Replica&, const torch::Tensor&, const torch::Tensor&)> step_;
};

inline Strategy make_strategy(const StepDevices& devices, const std::string& model) {
  if (!devices.xla_plugin.empty()) {
    return XlaStrategy({.plugin = devices.xla_plugin, .num_devices = devices.replicas});
  }
  if (devices.model_parallel > 1) {
    const DeviceMesh mesh({devices.replicas, devices.model_parallel}, {"batch", "model"},
                          cpu_devices(devices.replicas * devices.model_parallel));
    return MeshStrategy(mesh, {.layout = layouts::transformer(transformer(model)),
                               .exchange = {.threads_per_replica = devices.threads}});
  }
  std::vector<std::string> names = cpu_devices(devices.replicas);
  for (std::size_t i = 0; devices.gpus && i < names.size(); ++i) names[i] = "/GPU:" + std::to_string(i);
  return MirroredStrategy({.devices = names, .exchange = {.threads_per_replica = devices.threads}});
}

}  // namespace cohort::bench
