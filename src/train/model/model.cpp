// The handles of model.h.
#include "cohort/train/model.h"

#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/access.h"
#include "base/fail.h"
#include "checkpoint/folder.h"
#include "checkpoint/wholes_on_chief.h"
#include "cohort/train/script_module.h"
#include "device/identity.h"
#include "strategy/core.h"
#include "strategy/module_pieces.h"
#include "strategy/module_tensors.h"
#include "train/loop/loop.h"
#include "train/loop/parts.h"
#include "train/model/fit_options.h"
#include "train/model/kept_modes.h"
#include "train/model/keras_files.h"
#include "train/model/model_state.h"

namespace cohort {

namespace {

Dataset slices(const Example& columns, int64_t batch_size, bool shuffle) {
  const torch::Tensor& input = columns.input();
  if (!input.defined() || input.dim() == 0) {
    fail<InvalidArgument>("[model] ", columns.inputs.empty() ? "x" : "the first input", " is ",
                          input.defined() ? "a scalar" : "undefined", ", wanted a tensor of [examples, ...]");
  }
  const Dataset examples = Dataset::from_tensor_slices(columns);
  return (shuffle ? examples.shuffle(std::max<int64_t>(1, input.size(0))) : examples).batch(batch_size);
}

// A tied parameter counts once.
int64_t count_elements(const std::vector<ModelLayer>& layers) {
  std::set<const void*> counted;
  int64_t count = 0;
  for (const ModelLayer& each : layers) {
    for (const auto& [name, tensor] : each.weights()) {
      if (counted.insert(tensor_id(tensor)).second) count += tensor.numel();
    }
  }
  return count;
}

// Returns the shares of a batch for "what", and builds a model that is not built yet.
GlobalBatch shares_of(ModelState& state, const Example& batch, std::string_view what) {
  state.require_compiled(what);
  state.require_scope(what);
  GlobalBatch shares = state.split(batch);
  state.build_from(shares[0]);
  return shares;
}

Weights weights_of(const std::filesystem::path& checkpoint) {
  const CheckpointReader reader(checkpoint);
  reader.check();
  CheckpointData data{.values = reader.manifest().values};
  read_groups(
      reader, [](const std::string& group) { return group == "model"; }, data);
  const auto model = data.tensors.find("model");
  if (model == data.tensors.end()) {
    fail<NotFound>("[model] ", checkpoint.string(), ": the checkpoint has no \"model\"");
  }
  return {.tensors = std::move(model->second), .metadata = std::move(data.values)};
}

// The number of values that a script returns is known when it runs, not when the program is compiled.
detail::ModuleCall call_of(const std::shared_ptr<ScriptModule>& module) {
  detail::ModuleCall call{.module = module};
  if (module->has_one_output()) call.one = [module](const torch::Tensor& x) { return module->forward(x); };
  call.several = [module](const NamedTensors& inputs) {
    std::vector<torch::Tensor> list;
    for (const auto& [name, tensor] : inputs) list.push_back(tensor);
    return module->outputs(list);
  };
  return call;
}

}  // namespace

const std::string& ModelLayer::name() const {
  return model_->entries()[index_].name;
}
const std::string& ModelLayer::type() const {
  return model_->entries()[index_].type;
}
bool ModelLayer::trainable() const {
  return model_->entries()[index_].trainable;
}
void ModelLayer::set_trainable(bool trainable) const {
  model_->set_trainable(index_, trainable);
}
std::optional<Shape> ModelLayer::output_shape() const {
  return model_->entries()[index_].output;
}

NamedTensors ModelLayer::weights() const {
  model_->require_built("weights");
  NamedTensors list = model_->entry_parameters(index_, 0);
  for (auto& buffer : model_->entry_buffers(index_, 0)) list.push_back(std::move(buffer));
  return list;
}

int64_t ModelLayer::count_params() const {
  return count_elements({*this});
}

Model::Model(const std::function<detail::ModuleCall()>& factory, const ModelOptions& options, Foreign)
    : state_(std::make_shared<ModelState>(current_strategy(), options.name, torch::kFloat)) {
  state_->adopt(factory, options);
}

Model::Model(const torch::jit::Module& module, std::string name)
    : Model(module, ModelOptions{.name = std::move(name)}) {}

Model::Model(const torch::jit::Module& module, const ModelOptions& options)
    : Model([&module] { return call_of(std::make_shared<ScriptModule>(module)); }, options, Foreign{}) {}

const std::string& Model::name() const {
  return state_->name();
}
const Strategy& Model::strategy() const {
  return state_->strategy();
}
void Model::compile(const CompileOptions& options) {
  state_->compile(options);
}
bool Model::compiled() const {
  return state_->compiled();
}
bool Model::built() const {
  return state_->built();
}

void Model::build(const Shape& input, std::optional<torch::ScalarType> dtype) {
  if (built()) fail<FailedPrecondition>("[model] ", name(), ": build: the model is built already");
  state_->require_scope("build");
  state_->build(input, dtype.value_or(state_->dtype()));
}

History Model::fit(const Dataset& data, const FitOptions& options) {
  state_->require_compiled("fit");
  state_->require_scope("fit");
  state_->require_in_charge("fit");
  const std::string speaker = "[model] " + name() + ": fit: ";
  if (options.validation_split != 0.0) {
    fail<InvalidArgument>(speaker, "validation_split is ", options.validation_split, ", which fit() of tensors takes; ",
                          "divide a Dataset by take() and skip(), and give validation_data");
  }
  if (options.class_weight.empty()) return run_fit(*this, *state_, data, options);
  return run_fit(*this, *state_, with_class_weight(data, options.class_weight, speaker), options);
}

History Model::fit(const torch::Tensor& x, const torch::Tensor& y, const FitOptions& options) {
  return fit(Example{.x = x, .y = y}, options);
}

History Model::fit(const Example& columns, const FitOptions& options) {
  if (options.validation_split != 0.0) {
    const auto [train, held_out] = split_for_validation(columns, options, "[model] " + name() + ": fit: ");
    FitOptions rest = options;
    rest.validation_split = 0.0;
    rest.validation_data = slices(held_out, options.batch_size, /*shuffle=*/false);
    return fit(train, rest);
  }
  return fit(slices(columns, options.batch_size, options.shuffle), options);
}

Logs Model::evaluate(const Dataset& data, const EvaluateOptions& options) {
  state_->require_compiled("evaluate");
  state_->require_scope("evaluate");
  const DistributedDataset batches = strategy().distribute(data, options.input);
  ProgressBar progress(progress_options(options.verbose, options.output, strategy()));
  RunInfo run{.model = *this, .epochs = state_->epochs_done, .step = state_->iterations()};
  Listeners listeners(kCallbacks);
  for (const CallbackPtr& each : options.callbacks) listeners.add(each, run);
  return state_->keeping_metrics([&] {
    return *evaluate_on(*state_, batches,
                        {.steps = options.steps, .listeners = &listeners, .progress = &progress, .run = &run});
  });
}

Logs Model::evaluate(const torch::Tensor& x, const torch::Tensor& y, const EvaluateOptions& options) {
  return evaluate(Example{.x = x, .y = y}, options);
}

Logs Model::evaluate(const Example& columns, const EvaluateOptions& options) {
  return evaluate(slices(columns, options.batch_size, /*shuffle=*/false), options);
}

torch::Tensor Model::predict(const Dataset& data, const PredictOptions& options) {
  const NamedTensors outputs = predict_outputs(data, options);
  if (outputs.size() == 1) return outputs.front().second;
  fail<InvalidArgument>("[model] ", name(), ": predict: the module has the outputs ", quoted_names(outputs),
                        ": call predict_outputs()");
}

torch::Tensor Model::predict(const torch::Tensor& x, const PredictOptions& options) {
  return predict(slices({.x = x}, options.batch_size, /*shuffle=*/false), options);
}

NamedTensors Model::predict_outputs(const Dataset& data, const PredictOptions& options) {
  state_->require_scope("predict");
  return run_predict(*this, *state_, data, options);
}

NamedTensors Model::predict_outputs(const Example& columns, const PredictOptions& options) {
  return predict_outputs(slices(columns, options.batch_size, /*shuffle=*/false), options);
}

Logs Model::train_on_batch(const Example& batch) {
  const GlobalBatch shares = shares_of(*state_, batch, "train_on_batch");
  state_->begin_training();
  state_->begin_steps();
  return state_->keeping_metrics([&] {
    state_->reset_metrics();
    state_->train_step(shares);
    return state_->results();
  });
}

Logs Model::test_on_batch(const Example& batch) {
  const GlobalBatch shares = shares_of(*state_, batch, "test_on_batch");
  const KeptModes modes(state_->module());
  state_->begin_evaluation();
  return state_->keeping_metrics([&] {
    state_->reset_metrics();
    state_->test_step(shares);
    return state_->results();
  });
}

void Model::stop_training() {
  state_->stop = true;
}
bool Model::stopping() const {
  return state_->stop;
}

void Model::summary() const {
  summary(std::cout);
}

int64_t Model::count_params() const {
  state_->require_built("count_params");
  return count_elements(layers());
}

std::vector<ModelLayer> Model::layers() const {
  std::vector<ModelLayer> list;
  for (std::size_t i = 0; i < state_->entries().size(); ++i) {
    if (state_->entries()[i].is_layer) list.emplace_back(state_, i);
  }
  return list;
}

ModelLayer Model::layer(std::string_view name) const {
  std::string names;
  for (std::size_t i = 0; i < state_->entries().size(); ++i) {
    if (state_->entries()[i].name == name) return {state_, i};
    names += (i == 0 ? "" : ", ") + state_->entries()[i].name;
  }
  fail<NotFound>("[model] ", this->name(), ": there is no layer \"", name, "\"; there are ", names);
}

void Model::set_trainable(bool trainable) const {
  for (std::size_t i = 0; i < state_->entries().size(); ++i) state_->set_trainable(i, trainable);
}

NamedTensors Model::weights() const {
  state_->finish_steps();
  NamedTensors list = module().state();
  for (auto& [name, tensor] : list) tensor = tensor.is_cpu() ? tensor.clone() : tensor.cpu();
  return list;
}

void Model::set_weights(const NamedTensors& weights, bool strict) const {
  state_->finish_steps();
  state_->note_change();
  module().load_state(weights, strict);
}

void Model::save_weights(const std::filesystem::path& file, const std::map<std::string, std::string>& metadata) const {
  state_->require_built("save_weights");
  if (file.extension() == ".h5") {
    if (!metadata.empty()) fail<InvalidArgument>("[model] save_weights: ", file.string(), " has no place for metadata");
    return keras_files(file).save_weights(*this, file);
  }
  if (file.extension() == ".keras") fail<InvalidArgument>("[model] save_weights: save_model() writes ", file.string());
  std::map<std::string, std::string> described = metadata;
  described.emplace("format", "pt");  // readers of PyTorch's look for it
  described.emplace("step", std::to_string(state_->iterations()));
  described.emplace("epoch", std::to_string(state_->epochs_done));
  // The file describes tensors that it has under another of their names, as safetensors.torch.save_model does.
  for (const auto& list : {distinct_parameters, distinct_buffers}) {
    for (const ModuleTensor& each : list(*module().copies().front())) {
      for (const std::string& alias : each.aliases) described.emplace(alias, each.name);
    }
  }
  state_->finish_steps();
  if (is_divided(module())) return save_divided(module(), file, described);
  const NamedTensors state = module().state();
  Access::core(strategy())->on_chief("save_weights", [&] { cohort::save_weights(file, state, described); });
}

std::map<std::string, std::string> Model::load_weights(const std::filesystem::path& file, bool strict) const {
  state_->require_built("load_weights");
  if (file.extension() == ".h5" || file.extension() == ".keras") {
    if (!strict) fail<InvalidArgument>("[model] load_weights: ", file.string(), " is loaded whole: strict is false");
    keras_files(file).load_weights(*this, file);
    return {};
  }
  state_->finish_steps();
  state_->note_change();
  std::map<std::string, std::string> metadata;
  const StrategyCore& core = *Access::core(strategy());
  const auto read = [&] {
    Weights weights = std::filesystem::is_directory(file) ? weights_of(file) : cohort::load_weights(file);
    metadata = std::move(weights.metadata);
    return weights.tensors;
  };
  load_from_chief(module(), read, {.what = "load_weights", .source = "[model] " + file.string(), .strict = strict});
  metadata = nlohmann::json::parse(core.text_from_chief(nlohmann::json(metadata).dump()));
  const auto number = [&](const std::string& name) -> int64_t {
    const auto item = metadata.find(name);
    return item == metadata.end() ? 0 : std::strtoll(item->second.c_str(), nullptr, 10);
  };
  state_->loaded_step = number("step");
  state_->epochs_done = number("epoch");
  return metadata;
}

const MirroredOptimizer& Model::optimizer() const {
  return state_->optimizer();
}

const MirroredModule& Model::module() const {
  state_->require_built("module");
  return state_->module();
}

Direction Model::direction(std::string_view log) const {
  return state_->direction(log);
}

Sequential::Sequential(std::initializer_list<Layer> layers) : Sequential(std::vector<Layer>(layers)) {}

Sequential::Sequential(const std::vector<Layer>& layers, const SequentialOptions& options)
    : Model(std::make_shared<ModelState>(current_strategy(), options.name, options.dtype)) {
  if (!at::isFloatingType(options.dtype)) {
    fail<InvalidArgument>("[model] ", options.name, ": dtype is ", options.dtype, ", wanted a floating-point one");
  }
  Access::state(*this)->set_layers(layers);
}

void Sequential::add(const Layer& layer) {
  Access::state(*this)->add_layer(layer);
}

}  // namespace cohort
