// The handles of functional.h: models over a plan, and models that are layers.
#include "cohort/train/functional.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "base/access.h"
#include "base/fail.h"
#include "strategy/core.h"
#include "train/layers/sequential_module.h"
#include "train/layers/support.h"
#include "train/model/model_state.h"
#include "wings/functional/train/shared_layers.h"

namespace cohort {

namespace {

using Plan = FunctionalPlan;

detail::ModuleCall call_of(const std::shared_ptr<FunctionalModule>& module) {
  detail::ModuleCall call{.module = module};
  if (module->plan().inputs.size() == 1 && module->plan().outputs.size() == 1) {
    call.one = [module](const torch::Tensor& x) { return module->forward({x}).front(); };
  }
  call.several = [module](const NamedTensors& inputs) {
    std::vector<torch::Tensor> list;
    for (const auto& [name, tensor] : inputs) list.push_back(tensor);
    NamedTensors outputs;
    for (torch::Tensor& tensor : module->forward(list)) outputs.emplace_back(std::string(), std::move(tensor));
    return outputs;
  };
  return call;
}

std::vector<ModelState::Entry> entries_of(const Plan& plan) {
  std::vector<ModelState::Entry> entries;
  for (const Plan::Planned& each : plan.layers) {
    entries.push_back({.name = each.layer.name(),
                       .type = std::string(each.layer.type()),
                       .trainable = each.layer.trainable(),
                       .is_layer = dynamic_cast<const OperationKind*>(&each.layer.kind()) == nullptr,
                       .output = each.output,
                       .inputs = each.inputs});
  }
  return entries;
}

}  // namespace

std::shared_ptr<ModelState> make_functional(const Plan& plan, const FunctionalOptions& options) {
  if (!at::isFloatingType(options.dtype)) {
    fail<InvalidArgument>("[model] ", options.name, ": dtype is ", options.dtype, ", wanted a floating-point one");
  }
  auto state = std::make_shared<ModelState>(current_strategy(), options.name, options.dtype);
  const auto shared = std::make_shared<const Plan>(plan);
  LayersOfPlan layers(*shared, state->strategy(), options.dtype);
  std::vector<std::string> outputs;
  for (const auto& [name, output] : plan.outputs) outputs.push_back(name);
  if (outputs.size() == 1) outputs.clear();  // an only one is "the" output
  state->adopt([&] { return call_of(std::make_shared<FunctionalModule>(shared, layers.next())); },
               {.name = options.name, .inputs = plan.input_names(), .outputs = outputs});
  layers.share();
  std::vector<BuildContext> inputs;
  for (const SymbolicTensor& each : plan.inputs) {
    const torch::ScalarType dtype = at::isFloatingType(each.dtype()) ? options.dtype : each.dtype();
    inputs.push_back({.input = each.shape(), .dtype = options.dtype, .input_dtype = dtype});
  }
  state->set_entries(entries_of(plan), inputs);
  return state;
}

namespace {

const FunctionalModule& module_of(const Model& model) {
  return dynamic_cast<const FunctionalModule&>(*model.module().copies().front());
}

}  // namespace

Functional::Functional(const SymbolicTensor& input, const SymbolicOutputs& outputs, const FunctionalOptions& options)
    : Functional(std::vector<SymbolicTensor>{input}, outputs, options) {}

Functional::Functional(const std::vector<SymbolicTensor>& inputs, const SymbolicOutputs& outputs,
                       const FunctionalOptions& options)
    : Model(make_functional(make_plan(options.name, inputs, outputs), options)) {}

const std::vector<SymbolicTensor>& Functional::inputs() const {
  return module_of(*this).plan().inputs;
}

std::vector<SymbolicTensor> Functional::outputs() const {
  std::vector<SymbolicTensor> list;
  for (const auto& [name, output] : module_of(*this).plan().outputs) list.push_back(output);
  return list;
}

SymbolicTensor Functional::output_of(std::string_view layer) const {
  const Plan& plan = module_of(*this).plan();
  std::string names;
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    const Plan::Planned& each = plan.layers[i];
    names += (names.empty() ? "" : ", ") + each.layer.name();
    if (each.layer.name() != layer) continue;
    if (!each.calls.empty()) return {plan.calls[each.calls.front()].node, 0};
    const auto input = std::find(plan.input_layers.begin(), plan.input_layers.end(), i) - plan.input_layers.begin();
    return plan.inputs[static_cast<std::size_t>(input)];
  }
  fail<NotFound>("[model] ", name(), ": there is no layer \"", layer, "\"; there are ", names);
}

std::string_view ModelKind::type() const {
  const torch::nn::Module& module = *model_->module().copies().front();
  if (dynamic_cast<const FunctionalModule*>(&module) != nullptr) return "Functional";
  return dynamic_cast<const SequentialModule*>(&module) != nullptr ? "Sequential" : "Model";
}

std::string_view ModelKind::base_name() const {
  return model_->name();
}

Shape ModelKind::output_shape(const BuildContext& /*context*/) const {
  fail<InvalidArgument>("[model] ", model_->name(), ": a model is a layer of functional models alone");
}

std::shared_ptr<LayerModule> ModelKind::build(const BuildContext& context) const {
  output_shape(context);
  return nullptr;
}

namespace {

void require_shapes(const std::string& who, const std::vector<SymbolicTensor>& wanted,
                    const std::vector<SymbolicTensor>& inputs) {
  bool fit = wanted.size() == inputs.size();
  std::string text;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Shape& shape = wanted[i].shape();
    text += (i == 0 ? "" : ", ") + to_text(shape);
    fit = fit && inputs[i].shape().size() == shape.size();
    for (std::size_t d = 0; fit && d < shape.size(); ++d) {
      fit = shape[d] < 0 || inputs[i].shape()[d] < 0 || shape[d] == inputs[i].shape()[d];
    }
  }
  if (fit) return;
  std::string came;
  for (const SymbolicTensor& each : inputs) came += (came.empty() ? "" : ", ") + to_text(each.shape());
  fail<InvalidArgument>("[model] ", who, ": called on examples of ", came, ", wanted ", text);
}

// A module of the user's says what it returns when it is called.
std::vector<Shape> shapes_by_call(const detail::ModuleCall& call, const std::string& who, torch::ScalarType dtype,
                                  const std::vector<SymbolicTensor>& inputs) {
  const torch::NoGradGuard no_grad;
  NamedTensors zeros;
  for (const SymbolicTensor& each : inputs) {
    std::vector<int64_t> sizes = {2};
    for (const int64_t size : each.shape()) {
      if (size < 0) {
        fail<InvalidArgument>("[model] ", who, ": called on examples of ", to_text(each.shape()),
                              ", but a model over a module needs a shape that is known");
      }
      sizes.push_back(size);
    }
    const torch::ScalarType own = at::isFloatingType(each.dtype()) ? dtype : each.dtype();
    zeros.emplace_back("", torch::zeros(sizes, own));
  }
  const bool training = call.module->is_training();
  call.module->eval();
  NamedTensors outputs;
  if (call.one && zeros.size() == 1) {
    outputs.emplace_back("", call.one(zeros.front().second));
  } else {
    outputs = call.several(zeros);
  }
  call.module->train(training);
  std::vector<Shape> shapes;
  for (const auto& [name, output] : outputs) shapes.push_back(output.sizes().slice(1).vec());
  return shapes;
}

}  // namespace

std::vector<Shape> ModelKind::output_shapes(const std::vector<SymbolicTensor>& inputs) const {
  if (!model_->built()) {
    if (inputs.size() != 1) {
      fail<InvalidArgument>("[model] ", model_->name(), ": called on ", inputs.size(),
                            " tensors; a Sequential has one");
    }
    const torch::ScalarType dtype = inputs.front().dtype();
    model_->build(inputs.front().shape(), at::isFloatingType(dtype) ? model_->dtype() : dtype);
  }
  const detail::ModuleCall& call = model_->calls().front();
  if (const auto* const functional = dynamic_cast<const FunctionalModule*>(call.module.get())) {
    require_shapes(model_->name(), functional->plan().inputs, inputs);
    std::vector<Shape> shapes;
    for (const auto& [name, output] : functional->plan().outputs) shapes.push_back(output.shape());
    return shapes;
  }
  if (dynamic_cast<const SequentialModule*>(call.module.get()) != nullptr) {
    if (inputs.size() == 1) return {*model_->entries().back().output};
    fail<InvalidArgument>("[model] ", model_->name(), ": called on ", inputs.size(), " tensors; a Sequential has one");
  }
  return shapes_by_call(call, model_->name(), model_->dtype(), inputs);
}

}  // namespace cohort
