// Normalisation as Keras 3 has it: over one and several replicas, and within examples (batch_norm.json,
// layer_norm.json).
#include <gtest/gtest.h>

#include "cohort/strategy.h"
#include "cohort/train/layers.h"
#include "tests/golden/golden.h"

namespace cohort::testing::normalization_test {
namespace {

using nlohmann::json;

constexpr Tolerance kNear{.absolute = 1e-5, .relative = 1e-5};

// The channels go from the last dimension to the one behind the batch, and back.
torch::Tensor channels_first(const torch::Tensor& x) {
  return x.movedim(-1, 1).contiguous();
}
torch::Tensor channels_last(const torch::Tensor& x) {
  return x.movedim(1, -1);
}

void set(torch::nn::Module& module, const std::string& name, const json& values) {
  const torch::NoGradGuard no_grad;
  const auto parameters = module.named_parameters();
  if (!parameters.contains(name)) throw std::invalid_argument("there is no parameter " + name);
  torch::Tensor parameter = parameters[name];
  parameter.copy_(golden_tensor(values).view(parameter.sizes()));
}

BatchNormalizationOptions batch_norm_options(const json& options) {
  BatchNormalizationOptions made;
  for (const auto& [key, value] : options.items()) {
    if (key == "momentum") {
      made.momentum = value;
    } else if (key == "epsilon") {
      made.epsilon = value;
    } else if (key == "scale") {
      made.scale = value;
    } else if (key == "center") {
      made.center = value;
    } else if (key == "synchronized") {
      made.synchronized = value;
    } else {
      throw std::invalid_argument("there is no option " + key);
    }
  }
  return made;
}

// A buffer as it is read.
torch::Tensor buffer_of(const MirroredModule& layer, const std::string& name) {
  for (const auto& [key, tensor] : layer.state()) {
    if (key == name) return tensor;
  }
  throw std::invalid_argument("there is no buffer " + name);
}

// One step over all replicas, each with its share.
std::string check_step(const MirroredStrategy& strategy, const MirroredModule& layer, const json& step) {
  std::vector<torch::Tensor> shares;
  for (const json& share : step.at("inputs")) shares.push_back(channels_first(golden_tensor(share)));
  const auto outputs = strategy.run(
      [&](Replica& replica, const torch::Tensor& share) {
        const torch::NoGradGuard no_grad;
        auto& module = dynamic_cast<LayerModule&>(*layer.copies()[static_cast<std::size_t>(replica.local_id())]);
        return module.forward(share);
      },
      PerReplica<torch::Tensor>(shares));
  std::string apart;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    apart += difference(c10::str("output ", i), channels_last(outputs.values()[i]),
                        golden_tensor(step.at("outputs").at(i)), kNear);
  }
  apart += difference("moving_mean", buffer_of(layer, "running_mean"), golden_tensor(step.at("moving_mean")), kNear);
  return apart + difference("moving_variance", buffer_of(layer, "running_var"),
                            golden_tensor(step.at("moving_variance")), kNear);
}

std::string check_batch_norm(const json& golden) {
  const BatchNormalizationOptions options = batch_norm_options(golden.at("options"));
  const torch::Tensor first = channels_first(golden_tensor(golden.at("steps").at(0).at("inputs").at(0)));
  const MirroredStrategy strategy({.devices = cpu_devices(golden.at("replicas").get<int>())});
  const MirroredModule layer = strategy.mirror([&] {
    const Shape input = first.sizes().slice(1).vec();
    auto module = BatchNormalization(options).kind().build({.name = "bn", .input = input, .dtype = torch::kDouble});
    if (options.scale) set(*module, "weight", golden.at("gamma"));
    if (options.center) set(*module, "bias", golden.at("beta"));
    return module;
  });
  std::string apart;
  for (const json& step : golden.at("steps")) apart += check_step(strategy, layer, step);
  layer.synchronize_buffers();
  auto& module = dynamic_cast<LayerModule&>(*layer.copies()[0]);
  module.eval();
  const torch::Tensor x = channels_first(golden_tensor(golden.at("inference").at("input")));
  return apart + difference("inference", channels_last(module.forward(x)),
                            golden_tensor(golden.at("inference").at("output")), kNear);
}

TEST(GoldenNormalization, BatchNormOverReplicas) {
  check_golden("batch_norm.json", check_batch_norm);
}

// Builds the layer that a case names, for an input whose batch is left out.
std::shared_ptr<LayerModule> normalization(const json& golden, const Shape& input) {
  const json& options = golden.at("options");
  const BuildContext context{.name = "norm", .input = input, .dtype = torch::kDouble};
  if (golden.at("layer") == "RMSNormalization") {
    RMSNormalizationOptions made;
    if (options.contains("epsilon")) made.epsilon = options.at("epsilon");
    return RMSNormalization(made).kind().build(context);
  }
  if (golden.at("layer") == "GroupNormalization") {
    GroupNormalizationOptions made;
    made.groups = options.value("groups", made.groups);
    made.epsilon = options.value("epsilon", made.epsilon);
    made.center = options.value("center", true);
    made.scale = options.value("scale", true);
    return GroupNormalization(made).kind().build(context);
  }
  LayerNormalizationOptions made;
  for (const auto& [key, value] : options.items()) {
    if (key == "axis") {
      made.dimensions = static_cast<int64_t>(value.size());
    } else if (key == "epsilon") {
      made.epsilon = value;
    } else if (key == "center") {
      made.center = value;
    } else if (key == "scale") {
      made.scale = value;
    } else {
      throw std::invalid_argument("there is no option " + key);
    }
  }
  return LayerNormalization(made).kind().build(context);
}

TEST(GoldenNormalization, WithinExamples) {
  check_golden("layer_norm.json", [](const json& golden) {
    const bool by_channels = golden.at("layer") == "GroupNormalization";
    const torch::Tensor input = golden_tensor(golden.at("input"));
    const torch::Tensor x = by_channels ? channels_first(input) : input;
    const auto module = normalization(golden, x.sizes().slice(1).vec());
    for (const auto& [name, values] : golden.at("weights").items()) {
      set(*module, name == "beta" ? "bias" : "weight", values);
    }
    const torch::Tensor y = module->forward(x);
    return difference("output", by_channels ? channels_last(y) : y, golden_tensor(golden.at("output")), kNear);
  });
}

}  // namespace
}  // namespace cohort::testing::normalization_test
