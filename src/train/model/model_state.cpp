#include "train/model/model_state.h"

#include <algorithm>
#include <numeric>

#include "base/access.h"
#include "base/extension.h"
#include "base/fail.h"
#include "base/log.h"
#include "data/split.h"
#include "device/backend.h"
#include "strategy/combinations.h"
#include "strategy/core.h"
#include "train/layers/frozen.h"
#include "train/layers/sequential_module.h"
#include "train/model/model_cutter.h"

namespace cohort {

namespace {

// "torch::nn::Conv2dImpl" -> "Conv2d"
std::string short_type(const std::string& type) {
  const std::size_t colon = type.rfind("::");
  std::string name = colon == std::string::npos ? type : type.substr(colon + 2);
  if (name.size() > 4 && name.compare(name.size() - 4, 4, "Impl") == 0) name.resize(name.size() - 4);
  return name;
}

torch::ScalarType dtype_of(const torch::nn::Module& module, torch::ScalarType otherwise) {
  for (const torch::Tensor& parameter : module.parameters()) {
    if (parameter.is_floating_point()) return parameter.scalar_type();
  }
  return otherwise;
}

void require_precision(const std::string& who, const Strategy& strategy, PrecisionPolicy policy) {
  if (policy == PrecisionPolicy::kFloat32) return;
  const bool is_float16 = policy == PrecisionPolicy::kMixedFloat16;
  for (const LogicalDevice& device : strategy.worker_devices()) {
    if (backend_of(device.torch_device).trains_in(is_float16 ? torch::kHalf : torch::kBFloat16)) continue;
    fail<Unimplemented>(who, ": LibTorch does not compute ", is_float16 ? "mixed_float16" : "mixed_bfloat16",
                        " on the device ", device.torch_device.str(), ", where a replica is",
                        is_float16 ? "; mixed_bfloat16 is for CPUs, too" : "");
  }
}

// Returns the maker of the steps of a strategy's models, or null: their process makes them.
const StepsMaker* steps_maker(const Strategy& strategy) {
  for (const StepsMaker& maker : extensions<StepsMaker>()) {
    if (maker.serves(strategy)) return &maker;
  }
  return nullptr;
}

}  // namespace

ModelState::ModelState(const Strategy& strategy, std::string name, torch::ScalarType dtype)
    : strategy_(strategy),
      name_(std::move(name)),
      dtype_(dtype),
      loss_metric_(strategy, Mean({.name = "loss"})),
      steps_(std::make_unique<StepsHere>(*this)),
      steps_maker_(steps_maker(strategy)),
      functions_(make_step_functions(strategy, speaker())) {}

ModelState::~ModelState() = default;

void ModelState::set_layers(std::vector<Layer> layers) {
  name_layers(layers);
  layers_ = std::move(layers);
  entries_.clear();
  for (const Layer& layer : layers_) {
    entries_.push_back({.name = layer.name(), .type = std::string(layer.type()), .trainable = layer.trainable()});
  }
}

void ModelState::add_layer(const Layer& layer) {
  if (built()) fail<FailedPrecondition>("[model] ", name_, ": add: the model is built already; add layers before");
  std::vector<Layer> layers = layers_;
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i].set_trainable(entries_[i].trainable);
  layers.push_back(layer);
  set_layers(std::move(layers));
}

void ModelState::build(const Shape& input, torch::ScalarType input_dtype) {
  if (layers_.empty()) fail<FailedPrecondition>("[model] ", name_, ": build: the model has no layers");
  const torch::ScalarType entering = at::isFloatingType(input_dtype) ? dtype_ : input_dtype;
  const BuildContext context{.input = input, .dtype = dtype_, .input_dtype = entering};
  const std::vector<Shape> outputs = output_shapes(layers_, context);
  make_copies([&] { return detail::module_call(std::make_shared<SequentialModule>(layers_, context)); });
  cut({context});
  for (std::size_t i = 0; i < entries_.size(); ++i) entries_[i].output = outputs[i];
  built_for_ = context;
  apply_trainable();
  declare();
}

void ModelState::make_copies(const std::function<detail::ModuleCall()>& make) {
  std::vector<detail::ModuleCall> calls;
  module_ = strategy_.mirror([&] {
    calls.push_back(make());
    if (!calls.back().module) fail<InvalidArgument>(speaker(), "the factory returned an empty module");
    return calls.back().module;
  });
  calls_ = std::move(calls);
  called_terms_.resize(calls_.size());
  for (const detail::ModuleCall& call : calls_) {
    if (auto* module = dynamic_cast<LeavesParts*>(call.module.get())) module->leave_parts();
  }
}

void ModelState::cut(const std::vector<BuildContext>& inputs) const {
  std::vector<LayeredCopy> copies;
  for (const auto& copy : module_.copies()) {
    copies.push_back({.module = copy, .layers = dynamic_cast<LayeredModule*>(copy.get())});
  }
  for (const ModelCutter& cutter : extensions<ModelCutter>()) {
    cutter.cut(speaker(), *Access::core(strategy_), copies, inputs);
  }
}

// Those who are given steps hear of all variables before they serve.
void ModelState::declare() {
  if (!built() || !compiled()) return;
  if (steps_maker_ == nullptr) return;
  if (!std::exchange(declared_, true)) steps_ = steps_maker_->make(shared_from_this());
  optimizer();
}

void ModelState::build_from(const Example& share) {
  if (built()) return;
  if (share.size() < 0) return;  // checks that there is an input with a batch dimension
  if (share.inputs.size() > 1) {
    fail<InvalidArgument>(speaker(), "a Sequential has one input, the examples have ", quoted_names(share.inputs));
  }
  const torch::Tensor& input = share.input();
  build(input.sizes().slice(1).vec(), input.scalar_type());
}

void ModelState::adopt(const std::function<detail::ModuleCall()>& factory, const ModelOptions& options) {
  make_copies(factory);
  input_names_ = options.inputs;
  output_names_ = options.outputs;
  dtype_ = dtype_of(*module_.copies().front(), dtype_);
  list_children();
}

void ModelState::list_children() {
  const torch::nn::Module& root = *module_.copies().front();
  if (!root.parameters(/*recurse=*/false).empty()) {
    entries_.push_back({.name = ".", .type = short_type(root.name()), .own_only = true});
  }
  for (const auto& child : root.named_children()) {
    entries_.push_back({.name = child.key(), .type = short_type(child.value()->name())});
  }
}

void ModelState::set_entries(std::vector<Entry> entries, const std::vector<BuildContext>& inputs) {
  entries_ = std::move(entries);
  cut(inputs);
  apply_trainable();
}

void ModelState::require_built(std::string_view what) const {
  if (built()) return;
  fail<FailedPrecondition>("[model] ", name_, ": ", what,
                           ": the model is not built yet: call build(shape of an example), ", "or fit() it first");
}

void ModelState::require_compiled(std::string_view what) const {
  if (compiled()) return;
  fail<FailedPrecondition>("[model] ", name_, ": ", what, ": the model is not compiled: call compile() first");
}

void ModelState::require_scope(std::string_view what) const {
  if (Replica::current() != nullptr) {
    fail<FailedPrecondition>("[model] ", name_, ": ", what, ": called inside a replica; call it outside run()");
  }
  if (!has_strategy() || Access::core(current_strategy()) == Access::core(strategy_)) return;
  fail<FailedPrecondition>("[model] ", name_, ": ", what, ": the model was made under ", strategy_.name(),
                           ", but the scope of another strategy (", current_strategy().name(), ") is active");
}

std::shared_ptr<torch::nn::Module> ModelState::entry_module(std::size_t index, std::size_t replica) const {
  const auto& root = module_.copies()[replica];
  return entries_[index].own_only ? root : root->named_children()[entries_[index].name];
}

NamedTensors ModelState::entry_parameters(std::size_t index, std::size_t replica) const {
  NamedTensors list;
  for (const auto& item : entry_module(index, replica)->named_parameters(!entries_[index].own_only)) {
    list.emplace_back(item.key(), item.value());
  }
  return list;
}

NamedTensors ModelState::entry_buffers(std::size_t index, std::size_t replica) const {
  NamedTensors list;
  for (const auto& item : entry_module(index, replica)->named_buffers(!entries_[index].own_only)) {
    if (item.value().is_floating_point()) list.emplace_back(item.key(), item.value());
  }
  return list;
}

// Refuses to capture the steps of strategies that do not make them as one function of each replica's.
void ModelState::require_graphs() const {
  const std::string speaker = c10::str("[model] ", name_, ": compile:");
  const AskedFor graphs{.feature = kGraphs, .said = "jit_compile is true"};
  if (steps_maker_ != nullptr) {
    require_pair(speaker, graphs, {.feature = kServers, .said = c10::str(steps_maker_->takers, " make the steps")});
  }
  if (Access::core(strategy_)->plan().in_microbatches) {
    require_pair(speaker, graphs, {.feature = kPipeline, .said = "the strategy is a pipeline"});
  }
}

void ModelState::require_compiler(const CompileOptions& options) const {
  if (!options.jit_compile) return;
  const bool evaluates_eagerly = options.eval_run_eagerly.value_or(false);
  if (*options.jit_compile && (options.run_eagerly || evaluates_eagerly)) {
    fail<InvalidArgument>("[model] ", name_, ": compile: jit_compile and ",
                          options.run_eagerly ? "run_eagerly" : "eval_run_eagerly",
                          " are both true, wanted one of them");
  }
  for (const LogicalDevice& device : strategy_.worker_devices()) {
    const DeviceBackend& backend = backend_of(device.torch_device);
    const bool records = backend.records();
    if (records == *options.jit_compile) continue;
    if (!records && backend.captures()) {
      require_graphs();
      continue;
    }
    fail<InvalidArgument>("[model] ", name_, ": compile: jit_compile is ", records ? "false" : "true",
                          ", but a replica is on ", device.torch_device.str(),
                          records ? ", where all work is compiled" : ", where nothing is compiled", "; leave it unset");
  }
}

void ModelState::compile(const CompileOptions& options) {
  require_scope("compile");
  steps_->require_compiling();
  require_compiler(options);
  if (options.steps_per_execution < 1) {
    fail<InvalidArgument>("[model] ", name_, ": compile: steps_per_execution is ", options.steps_per_execution,
                          ", wanted 1 or more");
  }
  steps_per_execution_ = options.steps_per_execution;
  outputs_ = ModelOutputs(speaker(), output_names_, options);
  add_metrics(options);
  if (options.loss_average == LossAverage::kReplicas && steps_maker_ != nullptr) {
    fail<InvalidArgument>("[model] ", name_, ": compile: loss_average is kReplicas, but the workers of ",
                          steps_maker_->takers, " are no replicas that share a batch");
  }
  loss_average_ = options.loss_average;
  precision_ = options.precision;
  rule_ = options.optimizer;
  require_precision(speaker() + "compile", strategy_, precision_);
  if (precision_ == PrecisionPolicy::kMixedFloat16 && !rule_->gradient().loss_scale) rule_ = LossScaleOptimizer(*rule_);
  optimizer_ = MirroredOptimizer();
  loss_metric_.reset_state();
  compile_options_ = options;
  ++compilations_;
  make_functions(options);
  if (built()) apply_trainable();
  declare();
}

// The steps become functions anew, because layers may have been frozen, and the losses and the rule are others.
void ModelState::make_functions(const CompileOptions& options) {
  functions_ = make_step_functions(strategy_, speaker(), options.jit_compile.value_or(false));
  if (!functions_) return;
  if (options.eval_run_eagerly.value_or(options.run_eagerly)) {
    for (const StepKind kind : {StepKind::kTest, StepKind::kPredict}) functions_->leave_out(kind);
  }
  if (options.run_eagerly) functions_->leave_out(StepKind::kTrain);
}

// Returns whether a frozen layer other than this one holds the tensor, too: a tied parameter is frozen as long as any
// layer that has it is.
bool ModelState::held_elsewhere(std::size_t index, std::size_t replica, const torch::Tensor& parameter) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (i == index || entries_[i].applied || entries_[i].held.empty()) continue;
    const NamedTensors parameters = entry_parameters(i, replica);
    for (const std::size_t p : entries_[i].held) {
      if (parameters[p].second.is_same(parameter)) return true;
    }
  }
  return false;
}

void ModelState::apply_trainable() {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (entry.trainable == entry.applied) continue;
    for (std::size_t r = 0; r < module_.copies().size(); ++r) {
      const NamedTensors parameters = entry_parameters(i, r);
      if (!entry.trainable && r == 0) {
        entry.held.clear();
        for (std::size_t p = 0; p < parameters.size(); ++p) {
          const torch::Tensor& parameter = parameters[p].second;
          if (parameter.requires_grad() || held_elsewhere(i, r, parameter)) entry.held.push_back(p);
        }
      }
      for (const std::size_t p : entry.held) {
        torch::Tensor parameter = parameters[p].second;
        parameter.mutable_grad() = torch::Tensor();
        parameter.set_requires_grad(entry.trainable && !held_elsewhere(i, r, parameter));
      }
      for (const auto& each : entry_module(i, r)->modules()) {  // also of a model that is a layer
        if (const auto layer = std::dynamic_pointer_cast<LayerModule>(each)) layer->set_frozen(!entry.trainable);
      }
    }
    entry.applied = entry.trainable;
  }
}

const MirroredOptimizer& ModelState::optimizer() {
  require_compiled("optimizer");
  require_built("optimizer");
  if (!optimizer_.defined()) optimizer_ = strategy_.optimizer(module_, *rule_);
  return optimizer_;
}

void ModelState::warn_of_late_changes() const {
  for (const Entry& entry : entries_) {
    if (entry.trainable == entry.applied) continue;
    log().warn("[model] {}: set_trainable() was called on {} after compile(); it takes effect at the next compile()",
               name_, entry.name);
  }
}

void ModelState::begin_training() {
  optimizer();
  module_.train();
  for (std::size_t r = 0; r < module_.copies().size(); ++r) hold_frozen(r);
}

void ModelState::hold_frozen(std::size_t replica) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].applied || entries_[i].own_only) continue;
    const auto child = entry_module(i, replica);
    if (std::dynamic_pointer_cast<LayerModule>(child) == nullptr) hold_statistics(*child);
  }
}

void ModelState::begin_evaluation() const {
  finish_steps();
  module_.synchronize_buffers();
  module_.eval();
}

GlobalBatch ModelState::split(const Example& batch) const {
  const int64_t total = batch.size();
  const StrategyCore& core = *Access::core(strategy_);
  const std::vector<int64_t> sizes = sub_batch_sizes(total, 1, strategy_.num_replicas_in_sync(), 0);
  std::vector<Example> shares;
  for (int r = 0; r < strategy_.num_local_replicas(); ++r) {
    const auto own = sizes.begin() + core.topology().share_of(core.replica_id(r));
    const int64_t begin = std::accumulate(sizes.begin(), own, int64_t{0});
    const torch::Device device = strategy_.worker_devices()[static_cast<std::size_t>(r)].torch_device;
    shares.push_back(batch.rows(begin, begin + *own).to(device));
  }
  const bool some_empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  return GlobalBatch(std::move(shares), total, some_empty);
}

}  // namespace cohort
