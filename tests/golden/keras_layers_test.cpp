// Keras 3's layers with given weights: outputs, masks, and the gradients of inputs and weights (facts.json).
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "cohort/train/layers.h"
#include "tests/golden/golden.h"
#include "tests/golden/keras_layer_makers.h"

namespace cohort::testing::keras_layers_test {
namespace {

using nlohmann::json;
using torch::Tensor;

struct Call {
  std::vector<Tensor> inputs;
  std::vector<Tensor> masks;  // one an input; undefined for none
  torch::ScalarType dtype = torch::kDouble;
  Tolerance within = {.absolute = 1e-6, .relative = 1e-6};
};

Call call_of(const json& golden) {
  Call call;
  if (golden.contains("dtype")) {
    call.dtype = torch::kFloat;
    call.within = {.absolute = 1e-5, .relative = 1e-5};
  }
  for (const json& input : golden.at("inputs")) {
    const Tensor keras = golden_tensor(input, call.dtype);
    call.inputs.push_back(from_keras_layout(golden.at("layer"), keras).contiguous().requires_grad_());
  }
  call.masks.resize(call.inputs.size());
  if (!golden.contains("mask")) return call;
  const json& masks = golden.at("mask");
  for (std::size_t i = 0; i < masks.size(); ++i) {
    if (masks[i].is_null()) continue;
    call.masks.at(i) = golden_tensor(masks[i]).to(torch::kBool);
  }
  return call;
}

struct Result {
  std::vector<Tensor> outputs;
  Tensor mask;
};

struct Module {
  std::shared_ptr<LayerModule> layer;
  bool graph = false;
  std::vector<Shape> promised;

  Result operator()(const Call& call) const {
    if (graph) {
      const LayerValues values = std::static_pointer_cast<GraphLayerModule>(layer)->forward_values(
          {.tensors = call.inputs, .masks = call.masks});
      return {.outputs = values.tensors, .mask = values.masks.front()};
    }
    const Tensor& x = call.inputs.front();
    const Tensor& mask = call.masks.front();
    const Tensor y = mask.defined() ? layer->forward_masked(x, mask) : layer->forward(x);
    return {.outputs = {y}, .mask = mask.defined() ? layer->mask_of(x, mask) : Tensor()};
  }
};

Module module_of(const Layer& layer, const Call& call) {
  std::vector<Shape> shapes;
  for (const Tensor& input : call.inputs) shapes.push_back(input.sizes().slice(1).vec());
  const BuildContext context{.name = "it", .input = shapes.front(), .dtype = call.dtype, .input_dtype = call.dtype};
  if (const auto* kind = dynamic_cast<const GraphLayerKind*>(&layer.kind())) {
    std::vector<Shape> promised = kind->output_shapes(context, shapes);
    return {.layer = kind->build_for(context, shapes), .graph = true, .promised = std::move(promised)};
  }
  Shape promised = layer.kind().output_shape(context);
  return {.layer = layer.kind().build(context), .promised = {std::move(promised)}};
}

Tensor parameter(const LayerModule& module, const std::string& name) {
  const auto parameters = module.named_parameters();
  if (const Tensor* found = parameters.find(name)) return *found;
  throw std::invalid_argument("there is no parameter " + name);
}

// Calls fn with each parameter, by name, and the value that it is to have, of weights or of their gradients.
template <typename Fn>
void each_parameter(const json& golden, const json& values, torch::ScalarType dtype, const Fn& fn) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const json& value = values[i].is_object() ? values[i].at("value") : values[i];
    for (const auto& [name, own] : keras_parameters(golden, i, golden_tensor(value, dtype))) fn(name, own);
  }
}

std::string gradients_apart(const json& golden, const Call& call, const Module& module, const Result& result) {
  Tensor loss = torch::zeros({}, call.dtype);
  for (std::size_t i = 0; i < result.outputs.size(); ++i) {
    const Tensor cotangent = golden_tensor(golden.at("cotangents")[i], call.dtype);
    loss = loss + (result.outputs[i] * from_keras_layout(golden.at("layer"), cotangent)).sum();
  }
  loss.backward();
  std::string apart;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const Tensor wanted = from_keras_layout(golden.at("layer"), golden_tensor(golden.at("grad_inputs")[i], call.dtype));
    apart += difference("gradient of input " + std::to_string(i), call.inputs[i].grad(), wanted, call.within);
  }
  if (!golden.contains("grad_weights")) return apart;
  each_parameter(golden, golden.at("grad_weights"), call.dtype, [&](const std::string& name, const Tensor& wanted) {
    apart += difference("gradient of " + name, parameter(*module.layer, name).grad(), wanted, call.within);
  });
  return apart;
}

std::string mask_apart(const json& golden, const Result& result) {
  if (!golden.contains("output_mask")) return "";
  const json& wanted = golden.at("output_mask");
  if (wanted.is_null()) return result.mask.defined() ? "the output has a mask" : "";
  if (!result.mask.defined()) return "the output has no mask";
  const bool same = torch::equal(result.mask, golden_tensor(wanted).to(torch::kBool));
  return same ? "" : "the mask of the output differs";
}

std::string check(const json& golden, const Layer& layer) {
  const std::string name = golden.at("layer");
  const Call call = call_of(golden);
  const Module module = module_of(layer, call);
  if (golden.contains("weights")) {
    const torch::NoGradGuard no_grad;
    each_parameter(golden, golden.at("weights"), call.dtype,
                   [&](const std::string& parameter_name, const Tensor& value) {
                     parameter(*module.layer, parameter_name).copy_(value);
                   });
  }
  const bool training = golden.contains("call") && golden.at("call").value("training", false);
  module.layer->train(training);
  const Result result = module(call);
  if (result.outputs.size() != golden.at("outputs").size()) return "the number of outputs differs";
  std::string apart;
  for (std::size_t i = 0; i < result.outputs.size(); ++i) {
    const Tensor wanted = from_keras_layout(name, golden_tensor(golden.at("outputs")[i], call.dtype));
    apart += difference("output " + std::to_string(i), result.outputs[i], wanted, call.within);
    if (result.outputs[i].sizes().slice(1) != torch::IntArrayRef(module.promised.at(i))) apart += "promised shape; ";
  }
  apart += mask_apart(golden, result);
  // The gradients of TensorFlow's warps are warps back, which are not the derivatives.
  if (training) return apart;
  return apart + gradients_apart(golden, call, module, result);
}

TEST(KerasLayers, DoWhatKerasDoes) {
  int checked = 0;
  std::set<std::string> elsewhere;
  check_golden(golden_folder() / ".." / "facts" / "keras", "facts.json", [&](const json& golden) {
    if (golden.at("kind") != "layer") return std::string();
    const std::optional<Layer> layer = keras_layer(golden);
    if (!layer) {
      elsewhere.insert(golden.at("layer").get<std::string>());
      return std::string();
    }
    ++checked;
    return check(golden, *layer);
  });
  if (IsSkipped()) return;
  // The merges of functional models have tests of their own.
  EXPECT_EQ(elsewhere, (std::set<std::string>{"Dot", "Maximum"}));
  EXPECT_GE(checked, 65);
}

}  // namespace
}  // namespace cohort::testing::keras_layers_test
