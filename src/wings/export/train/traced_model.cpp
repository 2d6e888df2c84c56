#include "wings/export/train/traced_model.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "base/access.h"
#include "base/fail.h"
#include "cohort/replica.h"
#include "train/model/model_state.h"
#include "wings/export/train/any_batch.h"
#include "wings/export/train/host_reads.h"

namespace cohort::exports {

namespace {

using torch::jit::Stack;

// The sizes of the two batches that are traced: no other number of a model is likely to grow as they do.
constexpr int64_t kBatch = 3;
constexpr int64_t kOtherBatch = 5;
// The sizes of the batches by which the traced model is compared with the model.
constexpr int64_t kCompared[] = {1, 4};

// Has a model compute in the dtype of its parameters while it lives.
class OwnPrecision {
 public:
  explicit OwnPrecision(ModelState& model) : model_(model), before_(model.set_precision(PrecisionPolicy::kFloat32)) {}
  OwnPrecision(const OwnPrecision&) = delete;
  OwnPrecision& operator=(const OwnPrecision&) = delete;
  ~OwnPrecision() { model_.set_precision(before_); }

 private:
  ModelState& model_;
  PrecisionPolicy before_;
};

constexpr std::array<std::string_view, 35> kPythonKeywords = {
    "False", "None",   "True", "and",    "as",  "assert", "async",  "await",    "break", "class", "continue", "def",
    "del",   "elif",   "else", "except", "for", "from",   "global", "if",       "in",    "is",    "import",   "finally",
    "or",    "lambda", "not",  "pass",   "try", "raise",  "return", "nonlocal", "while", "with",  "yield"};

// Returns a name that TorchScript's text can have: LibTorch takes care of all but Python's keywords.
std::string script_name(const std::string& name) {
  const bool is_keyword = std::find(kPythonKeywords.begin(), kPythonKeywords.end(), name) != kPythonKeywords.end();
  return is_keyword ? name + "_" : name;
}

// Returns a name that Python takes for an argument.
std::string argument_name(const std::string& name) {
  std::string made = name.empty() ? "input" : name;
  for (char& c : made) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return std::isdigit(static_cast<unsigned char>(made.front())) != 0 ? "_" + made : script_name(made);
}

// Returns a script of the same tree of names, whose tensors are the module's own.
torch::jit::Module script_of(const torch::nn::Module& module, const std::string& type) {
  torch::jit::Module script((c10::QualifiedName(type)));
  script.register_attribute("training", c10::BoolType::get(), false);
  for (const auto& each : module.named_parameters(/*recurse=*/false)) {
    script.register_parameter(script_name(each.key()), each.value(), /*is_buffer=*/false);
  }
  for (const auto& each : module.named_buffers(/*recurse=*/false))
    script.register_buffer(script_name(each.key()), each.value());
  for (const auto& each : module.named_children()) {
    script.register_module(script_name(each.key()), script_of(*each.value(), type + "_" + argument_name(each.key())));
  }
  return script;
}

class ModelTracing {
 public:
  ModelTracing(const Model& model, const ExportOptions& options, bool out_of_place)
      : speaker_("[export] " + model.name() + ": "),
        state_(*Access::state(model)),
        options_(options),
        out_of_place_(out_of_place),
        example_(options.example) {
    require_exportable();
  }

  TracedModel operator()(const std::string& name) {
    const OwnPrecision precision(state_);
    const torch::NoGradGuard no_grad;
    TracedModel traced;
    traced.name = name;
    traced.any_batch = options_.batch_size == 0;
    traced.inputs = batch_of(traced.any_batch ? kBatch : options_.batch_size);
    traced.outputs = call(traced.inputs);
    traced.script = script_of(state_.called_copy(), "__torch__.cohort_export");
    traced.graph = graph_of(traced.script, traced.inputs);
    if (traced.any_batch) {
      torch::jit::Module other = script_of(state_.called_copy(), "__torch__.cohort_export");
      traced.batch_dims =
          take_any_batch(speaker_, *traced.graph, kBatch, *graph_of(other, batch_of(kOtherBatch)), kOtherBatch);
    }
    const c10::QualifiedName forward(*traced.script.type()->name(), "forward");
    traced.script.type()->addMethod(
        traced.script._ivalue()->compilation_unit()->create_function(forward, traced.graph->copy()));
    compare(traced);
    return traced;
  }

 private:
  void require_exportable() const {
    if (Replica::current() != nullptr) {
      fail<FailedPrecondition>(speaker_, "export_model() within Strategy::run(), wanted outside of it");
    }
    state_.require_built("export_model()");
    if (const auto parameters = state_.called_copy().parameters();
        std::any_of(parameters.begin(), parameters.end(), [](const auto& each) { return !each.device().is_cpu(); })) {
      fail<FailedPrecondition>(speaker_, "its parameters are on ", parameters.front().device(),
                               ", wanted CPUs: save_weights() writes them, and load_weights() reads them in a model ",
                               "that was made under OneDeviceStrategy(\"/CPU:0\"), which can be exported");
    }
    if (options_.batch_size < 0) {
      fail<InvalidArgument>(speaker_, "batch_size is ", options_.batch_size, ", wanted 1 or more, or 0 for any");
    }
    if (!example_.input().defined() || example_.size() < 1) {
      fail<InvalidArgument>(speaker_, "ExportOptions::example has no inputs or no rows, wanted a batch of one or more");
    }
  }

  // Returns the inputs of a batch of this size: the example's rows, from the first one again where they end.
  NamedTensors batch_of(int64_t size) const {
    const torch::Tensor rows = at::arange(size).remainder(example_.size());
    NamedTensors inputs;
    if (example_.x.defined()) inputs.emplace_back("x", example_.x.index_select(0, rows));
    for (const auto& [name, input] : example_.inputs) {
      if (!input.defined() || input.dim() == 0 || input.size(0) != example_.size()) {
        fail<InvalidArgument>(speaker_, "the example's input \"", name, "\" has other rows than the first one");
      }
      inputs.emplace_back(name, input.index_select(0, rows));
    }
    return inputs;
  }

  NamedTensors call(const NamedTensors& inputs) const {
    Example batch;
    batch.inputs = inputs;
    if (example_.x.defined()) {
      batch.x = inputs.front().second;
      batch.inputs.erase(batch.inputs.begin());
    }
    return state_.call(batch, /*training=*/false);
  }

  // Traces forward(), whose parameters are looked up in the script.
  std::shared_ptr<torch::jit::Graph> graph_of(torch::jit::Module& script, const NamedTensors& inputs) const {
    Stack stack;
    std::vector<std::string> names;
    for (const auto& [name, input] : inputs) {
      stack.emplace_back(input);
      names.push_back(argument_name(name));
    }
    const auto forward = [&](const Stack& traced) -> Stack {
      torch::jit::tracer::getTracingState()->warn = false;  // compare() finds what it warns of
      NamedTensors given = inputs;
      for (std::size_t i = 0; i < given.size(); ++i) given[i].second = traced[i].toTensor();
      NamedTensors outputs = call(given);
      if (outputs.size() == 1) return {outputs.front().second};
      std::vector<c10::IValue> list;
      for (auto& [name, output] : outputs) list.emplace_back(output);
      return {c10::ivalue::Tuple::create(std::move(list))};
    };
    const HostReads reads;
    const auto no_name = [](const torch::Tensor& /*tensor*/) { return std::string(); };
    const auto [trace, outputs] =
        torch::jit::tracer::trace(std::move(stack), forward, no_name, /*strict=*/true, out_of_place_, &script, names);
    if (const std::string& read = HostReads::first(); !read.empty()) {
      fail<InvalidArgument>(speaker_, "forward() looks at values on the host (", read,
                            "), which a file would keep as they were; wanted operations of tensors alone");
    }
    return trace->graph;
  }

  // Compares the script with the model, for batches that were not traced.
  void compare(TracedModel& traced) const {
    const torch::jit::GraphOptimizerEnabledGuard as_written(false);
    std::vector<int64_t> sizes = {traced.inputs.front().second.size(0)};
    if (traced.any_batch) sizes.insert(sizes.end(), std::begin(kCompared), std::end(kCompared));
    for (const int64_t size : sizes) {
      const NamedTensors inputs = batch_of(size);
      std::vector<c10::IValue> stack;
      for (const auto& [name, input] : inputs) stack.emplace_back(input);
      std::vector<c10::IValue> given;
      try {
        const c10::IValue result = traced.script.forward(stack);
        given = result.isTuple() ? result.toTupleRef().elements().vec() : std::vector<c10::IValue>{result};
      } catch (const std::exception& error) {
        fail<InvalidArgument>(speaker_, "what was traced fails for a batch of ", size, ": ", error.what());
      }
      const NamedTensors wanted = call(inputs);
      for (std::size_t i = 0; i < wanted.size(); ++i) compare(wanted[i], given[i].toTensor(), size);
    }
  }

  void compare(const std::pair<std::string, torch::Tensor>& wanted, const torch::Tensor& given, int64_t size) const {
    const auto& [name, output] = wanted;
    const double tolerance = output.scalar_type() == torch::kHalf || output.scalar_type() == torch::kBFloat16 ? 0.02
                             : output.scalar_type() == torch::kDouble                                         ? 1e-9
                                                                                                              : 1e-4;
    if (output.sizes() == given.sizes() && output.scalar_type() == given.scalar_type() &&
        at::allclose(given.to(torch::kDouble), output.to(torch::kDouble), tolerance, tolerance, /*equal_nan=*/true)) {
      return;
    }
    fail<InvalidArgument>(speaker_, "what was traced gives another output \"", name, "\" for a batch of ", size,
                          " than the model: forward() goes another way for some batches, draws random numbers, or ",
                          "writes to parts of tensors");
  }

  std::string speaker_;
  ModelState& state_;
  const ExportOptions& options_;
  bool out_of_place_;
  const Example& example_;
};

}  // namespace

TracedModel trace(const Model& model, const ExportOptions& options, bool out_of_place) {
  return ModelTracing(model, options, out_of_place)(options.name.empty() ? model.name() : options.name);
}

}  // namespace cohort::exports
