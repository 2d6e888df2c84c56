// Takes pointers to the memory of tensors, whose bytes go into the text.
#include "wings/xla/train/stablehlo_model.h"

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/ir/constants.h>

#include <cctype>
#include <unordered_map>

#include "base/fail.h"
#include "device/identity.h"
#include "wings/xla/record/recorder.h"
#include "wings/xla/record/stablehlo/text.h"

namespace cohort {

namespace {

using record::Captured;
using record::TensorType;
using torch::jit::Node;
using torch::jit::Stack;

const torch::Device kRecorded(torch::kXLA, 0);

TensorType type_of(const torch::Tensor& tensor) {
  return {tensor.scalar_type(), tensor.sizes().vec()};
}

std::string text_of(const TensorType& type) {
  return record::stablehlo::type_text(type.sizes, record::stablehlo::element_of(type.dtype));
}

std::string hex_of(const torch::Tensor& values) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  const torch::Tensor own = values.detach().contiguous();
  const auto* const bytes = static_cast<const unsigned char*>(own.data_ptr());
  std::string text;
  text.reserve(2 * own.nbytes());
  for (std::size_t i = 0; i < own.nbytes(); ++i) {
    text += kDigits[bytes[i] / 16];
    text += kDigits[bytes[i] % 16];
  }
  return text;
}

std::string nested_text(const torch::Tensor& booleans) {
  if (booleans.dim() == 0) return booleans.item<bool>() ? "true" : "false";
  std::string text;
  for (const torch::Tensor& part : booleans.unbind()) text += (text.empty() ? "" : ", ") + nested_text(part);
  return "[" + text + "]";
}

// Returns the text between the brackets of dense<>. The bytes of booleans mean different things to versions of MLIR.
std::string dense_text(const torch::Tensor& values) {
  if (values.numel() == 0) return "";
  if (values.scalar_type() == torch::kBool) return nested_text(values);
  return "\"0x" + hex_of(values) + "\"";
}

// Returns a string of MLIR's text.
std::string quoted(std::string text) {
  for (char& c : text) {
    if (c == '"' || c == '\\' || std::iscntrl(static_cast<unsigned char>(c)) != 0) c = '_';
  }
  return "\"" + text + "\"";
}

std::string message_of(const std::exception& error) {
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error == nullptr ? error.what() : torch_error->what_without_backtrace();
}

// Does what a traced graph does, on tensors that are recorded.
class RecordedGraph {
 public:
  RecordedGraph(std::string speaker, const torch::jit::Graph& graph, const c10::IValue& module)
      : speaker_(std::move(speaker)), graph_(graph) {
    values_[graph.inputs().front()] = module;
  }

  // Returns the outputs.
  std::vector<torch::Tensor> run(const NamedTensors& inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto& [name, input] = inputs[i];
      const torch::Tensor tensor = record::make_parameter(type_of(input), kRecorded, name);
      arguments_[record::value_of(tensor).node.get()] = i;
      values_[graph_.inputs()[i + 1]] = tensor;
    }
    for (const Node* const node : graph_.nodes()) run(*node);
    const c10::IValue& result = values_.at(graph_.outputs().front());
    if (result.isTensor()) return {result.toTensor()};
    std::vector<torch::Tensor> outputs;
    for (const c10::IValue& each : result.toTupleRef().elements()) outputs.push_back(each.toTensor());
    return outputs;
  }

  // Returns which input of the model a leaf is; nothing for others.
  std::optional<std::size_t> argument(const record::Value& leaf) const {
    const auto found = arguments_.find(leaf.node.get());
    return found == arguments_.end() ? std::nullopt : std::optional(found->second);
  }

  // Returns the value of another leaf.
  torch::Tensor constant(const record::Value& leaf) const {
    if (const auto found = weights_.find(leaf.node.get()); found != weights_.end()) return found->second;
    const auto& data = leaf.node->data.at(static_cast<std::size_t>(leaf.output));
    if (const auto* const host = dynamic_cast<const record::HostData*>(data.get())) return host->tensor();
    return record::runner()->fetch(*data, leaf.type());
  }

 private:
  void run(const Node& node) {
    if (node.kind() == c10::prim::Constant) {
      values_[node.output()] = constant_of(node);
    } else if (node.kind() == c10::prim::GetAttr) {
      get_attribute(node);
    } else {
      Stack stack;
      for (const torch::jit::Value* const input : node.inputs()) {
        stack.push_back(values_.at(input));
        if (stack.back().isTensor() && paths_.contains(input)) module_ = paths_.at(input);
      }
      try {
        run(node, stack);
      } catch (const std::exception& error) {
        refuse(node.kind().toQualString(), message_of(error));
      }
      for (std::size_t i = 0; i < node.outputs().size(); ++i) values_[node.output(i)] = recorded(stack.at(i), "");
    }
  }

  // Replaces the arguments by the results.
  static void run(const Node& node, Stack& stack) {
    switch (node.kind()) {
      case c10::prim::ListConstruct: {
        c10::impl::GenericList list(node.output()->type()->expectRef<c10::ListType>().getElementType());
        for (c10::IValue& each : stack) list.push_back(std::move(each));
        stack = {list};
        return;
      }
      case c10::prim::TupleConstruct:
        stack = {c10::ivalue::Tuple::create(std::move(stack))};
        return;
      case c10::prim::ListUnpack:
        stack = stack.front().toListRef().vec();
        return;
      case c10::prim::TupleUnpack: {
        const auto tuple = stack.front().toTuple();
        stack.assign(tuple->elements().begin(), tuple->elements().end());
        return;
      }
      case c10::aten::_convolution:  // the recorder takes the form without the flags of cuDNN
        stack.resize(9);
        return c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "").callBoxed(&stack);
      default:
        if (node.maybeOperator() == nullptr) fail<InvalidArgument>("it is no operation of tensors");
        node.getOperation()(stack);
    }
  }

  [[noreturn]] void refuse(const std::string& operation, const std::string& why) const {
    fail<InvalidArgument>(
        speaker_, "the operation ", operation, " has no form in StableHLO here; it stands ",
        module_.empty() ? "before any module that has parameters" : "in the module \"" + module_ + "\" or behind it",
        " (", why, ")");
  }

  void get_attribute(const Node& node) {
    const c10::intrusive_ptr<c10::ivalue::Object> object = values_.at(node.input()).toObject();
    const std::string& name = node.s(c10::attr::name);
    const std::string& module = paths_[node.input()];
    const std::string path = module.empty() ? name : module + "." + name;
    const c10::IValue value = object->getAttr(name);
    paths_[node.output()] = value.isTensor() ? module : path;
    values_[node.output()] = recorded(value, path);
  }

  c10::IValue constant_of(const Node& node) {
    const auto value = torch::jit::toIValue(node.output());
    if (!value) return {};
    return value->isDevice() ? c10::IValue(kRecorded) : recorded(*value, "constant");
  }

  // Returns a tensor of the host as one of the recording, the same one each time, and all else as it is.
  c10::IValue recorded(const c10::IValue& value, const std::string& name) {
    if (!value.isTensor() || !value.toTensor().defined() || record::is_recorded(value.toTensor())) return value;
    const torch::Tensor& host = value.toTensor();
    torch::Tensor& tensor = tensors_[tensor_id(host)];
    if (!tensor.defined()) {
      tensor = record::make_parameter(type_of(host), kRecorded, name);
      weights_[record::value_of(tensor).node.get()] = host;
    }
    return tensor;
  }

  std::string speaker_;
  const torch::jit::Graph& graph_;
  std::unordered_map<const torch::jit::Value*, c10::IValue> values_;
  std::unordered_map<const torch::jit::Value*, std::string> paths_;  // of modules; those of tensors' modules
  std::unordered_map<const void*, torch::Tensor> tensors_;           // by those of the host, which weights_ holds
  std::unordered_map<const record::Node*, torch::Tensor> weights_;   // tensors of the host
  std::unordered_map<const record::Node*, std::size_t> arguments_;   // numbers of the model's inputs
  std::string module_;                                               // that of the last weight that was used
};

// Returns the function "main", which calls the program with the inputs of the model and the weights.
std::string main_text(const RecordedGraph& graph, const Captured& captured, const NamedTensors& inputs,
                      const NamedTensors& outputs) {
  std::string arguments, constants, given, taken, results, types, returned;
  const auto add = [](std::string& list, const std::string& text) { list += (list.empty() ? "" : ", ") + text; };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto& [name, input] = inputs[i];
    add(arguments, "%input" + std::to_string(i) + ": " + text_of(type_of(input)) + " loc(" + quoted(name) + ")");
  }
  const std::vector<record::ProgramInput>& needed = captured.program->inputs();
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const bool is_data = i < captured.data.size();
    const std::optional<std::size_t> argument = is_data ? graph.argument(captured.data[i]) : std::nullopt;
    add(taken, text_of(needed[i].type));
    add(given, argument ? "%input" + std::to_string(*argument) : "%constant" + std::to_string(i));
    if (argument) continue;
    const torch::Tensor value = is_data ? graph.constant(captured.data[i]) : captured.scalars[i - captured.data.size()];
    constants += "    %constant" + std::to_string(i) + " = stablehlo.constant dense<" + dense_text(value) +
                 "> : " + text_of(needed[i].type) + " loc(" + quoted(is_data ? needed[i].name : "numbers") + ")\n";
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string type = text_of(captured.program->type_of(captured.program->outputs()[i]));
    add(types, type);
    add(results, type + " {jax.result_info = " + quoted(outputs[i].first) + "}");
    add(returned, "%result" + (outputs.size() == 1 ? "" : "#" + std::to_string(i)));
  }
  return "  func.func public @main(" + arguments + ") -> (" + results + ") {\n" + constants + "    %result" +
         (outputs.size() == 1 ? "" : ":" + std::to_string(outputs.size())) + " = func.call @step(" + given + ") : (" +
         taken + ") -> (" + types + ")\n    return " + returned + " : " + types + "\n  }\n";
}

// Returns a name that MLIR takes for a module without quotes.
std::string module_name(std::string name) {
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name.empty() || std::isdigit(static_cast<unsigned char>(name.front())) != 0 ? "_" + name : name;
}

std::string write_stablehlo(const std::string& name, const torch::jit::Graph& graph, const c10::IValue& module,
                            const NamedTensors& inputs, const NamedTensors& outputs) {
  const torch::NoGradGuard no_grad;
  const std::string speaker = "[export] " + name + ": ";
  record::install_recorder({.for_inference = true});
  record::Recording& recording = record::recording_of(kRecorded);
  const record::Recording::Capturing capturing(recording, "a model for StableHLO");
  RecordedGraph recorded(speaker, graph, module);
  const Captured captured = recording.capture(recorded.run(inputs));
  try {
    return record::to_stablehlo(*captured.program,
                                {.name = module_name(name), .main = main_text(recorded, captured, inputs, outputs)});
  } catch (const Unimplemented& error) {
    fail<InvalidArgument>(speaker, error.what());
  }
}

}  // namespace

StableHloWriter stablehlo_writer() {
  return {.write = write_stablehlo};
}

}  // namespace cohort
