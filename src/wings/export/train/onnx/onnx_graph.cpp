// Takes pointers to the memory of tensors, whose bytes go into the file.
#include "wings/export/train/onnx/onnx_graph.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "base/fail.h"
#include "cohort/version.h"
#include "wings/export/train/onnx/rules.h"

namespace cohort::exports {

namespace {

using onnx_format::AttributeProto;
using torch::jit::Node;
using torch::jit::Value;

constexpr int64_t kIrVersion = 8;  // the version of the format that came with the operations
constexpr int64_t kOperations = 17;
constexpr int64_t kMostBytes = (int64_t{1} << 31) - (int64_t{1} << 24);  // Protobuf's limit, without the nodes
constexpr const char* kBatchName = "batch";

void set_attribute(AttributeProto& to, const std::string& name, const Attribute& value) {
  to.set_name(name);
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    to.set_type(AttributeProto::INT);
    to.set_i(*integer);
  } else if (const auto* number = std::get_if<double>(&value)) {
    to.set_type(AttributeProto::FLOAT);
    to.set_f(static_cast<float>(*number));
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    to.set_type(AttributeProto::STRING);
    to.set_s(*text);
  } else if (const auto* integers = std::get_if<Sizes>(&value)) {
    to.set_type(AttributeProto::INTS);
    for (const int64_t each : *integers) to.add_ints(each);
  } else {
    to.set_type(AttributeProto::FLOATS);
    for (const double each : std::get<std::vector<double>>(value)) to.add_floats(static_cast<float>(each));
  }
}

}  // namespace

std::optional<int32_t> onnx_dtype(torch::ScalarType dtype) {
  switch (dtype) {
    case torch::kFloat:
      return 1;
    case torch::kByte:
      return 2;
    case torch::kChar:
      return 3;
    case torch::kShort:
      return 5;
    case torch::kInt:
      return 6;
    case torch::kLong:
      return 7;
    case torch::kBool:
      return 9;
    case torch::kHalf:
      return 10;
    case torch::kDouble:
      return 11;
    default:
      return std::nullopt;
  }
}

OnnxGraph::OnnxGraph(const TracedModel& model) : traced_(model), graph_(*model_.mutable_graph()) {}

onnx_format::ModelProto OnnxGraph::model() {
  model_.set_ir_version(kIrVersion);
  model_.set_producer_name("cohort");
  model_.set_producer_version(COHORT_VERSION);
  auto& operations = *model_.add_opset_import();
  operations.set_domain("");
  operations.set_version(kOperations);
  auto& metadata = *model_.add_metadata_props();
  metadata.set_key("name");
  metadata.set_value(traced_.name);
  graph_.set_name(traced_.name);
  for (std::size_t i = 0; i < traced_.inputs.size(); ++i) {
    const auto& [name, tensor] = traced_.inputs[i];
    declare(*graph_.add_input(), name, tensor);
    give(traced_.graph->inputs()[i + 1], name);
  }
  for (const Node* const node : traced_.graph->nodes()) lower(*node);
  add_results();
  return std::move(model_);
}

// Gives the results the outputs' names.
void OnnxGraph::add_results() {
  std::vector<const Value*> results = {traced_.graph->outputs().front()};
  if (traced_.outputs.size() > 1) results = list(results.front());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto& [name, tensor] = traced_.outputs[i];
    for (const auto& [input, other] : traced_.inputs) {
      if (input != name) continue;
      fail<InvalidArgument>("[export] ", traced_.name, ": an input and an output are both named \"", name,
                            "\", which ONNX does not take");
    }
    onnx_format::NodeProto& node = *graph_.add_node();
    node.set_op_type("Identity");
    node.set_name("Output_" + name);
    node.add_input(this->tensor(results[i]));
    node.add_output(name);
    declare(*graph_.add_output(), name, tensor);
  }
}

void OnnxGraph::declare(onnx_format::ValueInfoProto& info, const std::string& name, const torch::Tensor& like) const {
  const auto dtype = onnx_dtype(like.scalar_type());
  if (!dtype) {
    fail<InvalidArgument>("[export] ", traced_.name, ": \"", name, "\" is ", like.scalar_type(),
                          ", for which ONNX's operations have no form; wanted float32, float64, float16, an integer ",
                          "dtype or booleans");
  }
  info.set_name(name);
  auto& type = *info.mutable_type()->mutable_tensor_type();
  type.set_elem_type(*dtype);
  auto& shape = *type.mutable_shape();
  for (int64_t dim = 0; dim < like.dim(); ++dim) {
    auto& size = *shape.add_dim();
    const bool any = dim == 0 && traced_.any_batch;
    any ? size.set_dim_param(kBatchName) : size.set_dim_value(like.size(dim));
  }
}

void OnnxGraph::lower(const Node& node) {
  switch (node.kind()) {
    case c10::prim::Constant:
    case c10::prim::GetAttr:
    case c10::prim::ListConstruct:
    case c10::prim::TupleConstruct:
      return;  // read where they are used
    case c10::prim::ListUnpack:
    case c10::prim::TupleUnpack: {
      const auto found = lists_.find(node.input());
      const auto values = found == lists_.end() ? list(node.input()) : std::vector<const Value*>();
      for (std::size_t i = 0; i < node.outputs().size(); ++i) {
        give(node.output(i), found == lists_.end() ? tensor(values[i]) : found->second[i]);
      }
      return;
    }
    default:
      lower_own(node);
  }
}

void OnnxGraph::lower_own(const Node& node) {
  // What a rule reads says which module this is, whose parameters come first.
  for (const Value* const input : node.inputs()) {
    if (input->node()->kind() == c10::prim::GetAttr && input->type()->isSubtypeOf(*c10::TensorType::get())) {
      const std::string path = path_of(input);
      module_ = path.substr(0, path.find_last_of('.') == std::string::npos ? 0 : path.find_last_of('.'));
    }
  }
  const Rule rule = find_rule(node.kind().toQualString());
  if (rule == nullptr) refuse(node, "has no form in ONNX here");
  rule(TracedOperation{*this, node});
}

void OnnxGraph::refuse(const Node& node, const std::string& why) {
  const std::string place = module_.empty() ? std::string("before any module that has parameters")
                                            : "in the module \"" + module_ + "\" or behind it";
  fail<InvalidArgument>("[export] ", traced_.name, ": the operation ", node.kind().toQualString(), " ", why,
                        "; it stands ", place);
}

std::string OnnxGraph::path_of(const Value* value) const {
  std::string path;
  for (const Node* node = value->node(); node->kind() == c10::prim::GetAttr; node = node->input()->node()) {
    path.insert(0, node->s(c10::attr::name) + (path.empty() ? "" : "."));
  }
  return path;
}

c10::IValue OnnxGraph::attribute(const Value* value) const {
  const Node& node = *value->node();
  if (node.kind() != c10::prim::GetAttr) return traced_.script._ivalue();
  return attribute(node.input()).toObjectRef().getAttr(node.s(c10::attr::name));
}

torch::Tensor OnnxGraph::known_tensor(const Value* value) const {
  const c10::Symbol kind = value->node()->kind();
  if (kind == c10::prim::GetAttr) return attribute(value).toTensor();
  if (kind != c10::prim::Constant) return {};
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isTensor() ? constant->toTensor() : torch::Tensor();
}

std::optional<c10::IValue> OnnxGraph::known(const Value* value) const {
  if (value->node()->kind() == c10::prim::Constant) {
    const auto constant = torch::jit::toIValue(value);
    return constant ? *constant : c10::IValue();
  }
  return std::nullopt;
}

bool OnnxGraph::depends_on_batch(const Value* value, int64_t dim) const {
  const auto found = traced_.batch_dims.find(value);
  return found != traced_.batch_dims.end() && found->second[static_cast<std::size_t>(dim)];
}

std::vector<const Value*> OnnxGraph::list(const Value* value) const {
  const auto inputs = value->node()->inputs();
  return {inputs.begin(), inputs.end()};
}

Name OnnxGraph::tensor(const Value* value) {
  if (const auto found = names_.find(value); found != names_.end()) return found->second;
  if (const torch::Tensor values = known_tensor(value); values.defined()) {
    if (value->node()->kind() != c10::prim::GetAttr) {
      names_[value] = constant(values);
    } else {
      names_[value] = parameter(path_of(value), values);
    }
    return names_[value];
  }
  const auto number = known(value);
  if (!number || !number->isScalar()) refuse(*value->node(), "gives no tensor");
  return names_[value] = constant(at::scalar_tensor(number->toScalar(), number->isDouble() ? torch::kFloat
                                                                        : number->isBool() ? torch::kBool
                                                                                           : torch::kLong));
}

// Returns the name of a parameter, which is its path if no input or output has that name.
Name OnnxGraph::parameter(const std::string& path, const torch::Tensor& values) {
  const auto [place, added] = parameters_.emplace(path, path);
  if (!added) return place->second;
  const auto is_taken = [&](const NamedTensors& tensors) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const auto& each) { return each.first == path; });
  };
  if (is_taken(traced_.inputs) || is_taken(traced_.outputs)) place->second = "/" + path;
  initialize(place->second, values);
  return place->second;
}

Name OnnxGraph::add(const std::string& operation, const Names& inputs, const Attributes& attributes) {
  return add_many(operation, inputs, attributes, 1).front();
}

Names OnnxGraph::add_many(const std::string& operation, const Names& inputs, const Attributes& attributes,
                          std::size_t outputs) {
  onnx_format::NodeProto& node = *graph_.add_node();
  const std::string name = operation + "_" + std::to_string(++count_);
  node.set_op_type(operation);
  node.set_name(module_.empty() ? name : module_ + "/" + name);
  for (const Name& input : inputs) node.add_input(input);
  Names names;
  for (std::size_t i = 0; i < outputs; ++i) {
    names.push_back("/" + name + (outputs == 1 ? "" : "_" + std::to_string(i)));
    node.add_output(names.back());
  }
  for (const auto& [key, value] : attributes) set_attribute(*node.add_attribute(), key, value);
  return names;
}

Name OnnxGraph::constant(const torch::Tensor& values) {
  Name name = "/Constant_" + std::to_string(++count_);
  initialize(name, values);
  return name;
}

Name OnnxGraph::integers(const Sizes& values) {
  Name& name = integers_[values];
  if (name.empty()) name = constant(torch::tensor(values, torch::kLong));
  return name;
}

void OnnxGraph::initialize(const Name& name, const torch::Tensor& values) {
  const auto dtype = onnx_dtype(values.scalar_type());
  if (!dtype) {
    fail<InvalidArgument>("[export] ", traced_.name, ": the tensor ", name, " is ", values.scalar_type(),
                          ", for which ONNX's operations have no form here; wanted float32, float64 or float16");
  }
  const torch::Tensor own = values.detach().contiguous();
  bytes_ += static_cast<int64_t>(own.nbytes());
  if (bytes_ > kMostBytes) {
    fail<InvalidArgument>("[export] ", traced_.name, ": the tensors have more than ", kMostBytes,
                          " bytes, which an ONNX file cannot hold; TorchScript (.pt) can");
  }
  onnx_format::TensorProto& tensor = *graph_.add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(*dtype);
  for (const int64_t size : own.sizes()) tensor.add_dims(size);
  tensor.set_raw_data(own.data_ptr(), own.nbytes());
}

}  // namespace cohort::exports
