// TensorFlow's guide "Use a GPU", and a model in two parts: tensors that the program places, a loop over a strategy,
// and layers on two devices. Where there are no GPUs, CPUs stand for them. Ends well when each tensor is where it was
// meant to be and the loss has fallen.
#include <torch/torch.h>

#include <cstdio>

#include "cohort/cohort.h"

namespace {

using namespace cohort;

// Computes on a device that it names; returns whether the result is there.
bool explicit_placement(const std::string& gpu_device) {
  const std::string cpu_device = "/CPU:0";
  torch::Tensor cpu_tensor, gpu_tensor, result_gpu, result_cpu;
  {
    const DeviceScope device(cpu_device);
    cpu_tensor = torch::randn({100, 100}, placement_options());
  }
  {
    const DeviceScope device(gpu_device);
    gpu_tensor = torch::randn({100, 100}, placement_options());
    result_gpu = torch::matmul(gpu_tensor, gpu_tensor);
  }
  {
    const DeviceScope device(cpu_device);
    result_cpu = torch::sum(cpu_tensor);
  }
  std::printf("Result on %s: %ld rows. Result on CPU: %g\n", gpu_device.c_str(), static_cast<long>(result_gpu.size(0)),
              result_cpu.item<double>());
  return result_gpu.device() == find_logical_device(gpu_device).torch_device && result_cpu.device().is_cpu();
}

// Trains under a strategy for five epochs; returns whether the loss has fallen.
bool data_parallelism() {
  const MirroredStrategy strategy;
  const auto scope = strategy.scope();
  Sequential model{Dense(64, "relu"), Dense(10, "softmax")};
  model.build({100});
  MirroredOptimizer optimizer = strategy.optimizer(model, Adam({.learning_rate = 0.01}));
  const Loss loss_fn = CategoricalCrossentropy();
  const torch::Tensor x_train = torch::randn({1000, 100});
  const torch::Tensor y_train = torch::one_hot(x_train.slice(1, 0, 10).argmax(1), 10).to(torch::kFloat);
  const Dataset train_dataset = Dataset::from_tensor_slices(x_train, y_train).batch(32);
  std::vector<double> epochs;
  for (int epoch = 0; epoch < 5; ++epoch) {
    double total = 0.0;
    for (const GlobalBatch& batch : strategy.distribute(train_dataset)) {
      const auto losses = strategy.run(
          [&](Replica& replica, const Example& share) {
            const torch::Tensor predictions = model(share.x, {.training = true});
            const torch::Tensor loss = compute_average_loss(loss_fn.per_example(share.y, predictions));
            optimizer[replica].apply_gradients(torch::autograd::grad({loss}, model.trainable_variables()));
            return loss.detach();
          },
          batch);
      total += strategy.reduce(ReduceOp::kSum, losses).item<double>();
    }
    epochs.push_back(total / static_cast<double>(train_dataset.cardinality()));
    std::printf("Epoch %d, loss %.4f\n", epoch + 1, epochs.back());
  }
  return epochs.back() < 0.7 * epochs.front();
}

// A model whose first layer is on one device and whose second layer is on another one.
struct ModelParallelImpl : torch::nn::Module {
  ModelParallelImpl(const LogicalDevice& device_1, const LogicalDevice& device_2)
      : first(device_1.torch_device), second(device_2.torch_device) {
    {
      const DeviceScope device(device_1);
      place(*first_layer, "first_layer");
    }
    const DeviceScope device(device_2);
    place(*second_layer, "second_layer");
  }
  torch::Tensor forward(const torch::Tensor& inputs) {
    const torch::Tensor output_1 = torch::relu(first_layer(inputs.to(first)));
    return torch::softmax(second_layer(output_1.to(second)), 1);
  }
  torch::Device first, second;
  torch::nn::Linear first_layer{register_module("first_layer", torch::nn::Linear(100, 128))};
  torch::nn::Linear second_layer{register_module("second_layer", torch::nn::Linear(128, 10))};
};
TORCH_MODULE(ModelParallel);

bool model_parallelism() {
  std::vector<LogicalDevice> devices = list_logical_devices("GPU");
  if (devices.size() < 2) {
    std::printf("At least 2 GPUs are needed: two logical CPUs instead.\n");
    devices = list_logical_devices("CPU");
  }
  ModelParallel model(devices[0], devices[1]);
  const torch::Tensor output = model(torch::randn({64, 100}));
  std::printf("Output: %ld x %ld\n", static_cast<long>(output.size(0)), static_cast<long>(output.size(1)));
  return output.device() == devices[1].torch_device;
}

}  // namespace

int main() {
  torch::manual_seed(1);
  set_logical_devices({.type = "CPU", .index = 0}, 2);  // before they are used
  set_log_device_placement(true);
  const bool has_gpu = !list_logical_devices("GPU").empty();
  const bool placed = explicit_placement(has_gpu ? "/GPU:0" : "/CPU:1");
  const bool trained = data_parallelism();
  return placed && trained && model_parallelism() ? 0 : 1;
}
