// OnnxGraph: makes the nodes of an ONNX graph from the operations of a traced model. Rules say how, one for each
// operation (rules.h).
#pragma once

#include <torch/csrc/jit/ir/ir.h>
#include <torch/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "onnx_format.pb.h"
#include "wings/export/train/traced_model.h"

namespace cohort::exports {

// The name of a tensor in the ONNX graph. An empty name stands for an input that is left out.
using Name = std::string;
using Names = std::vector<std::string>;
using Sizes = std::vector<int64_t>;
using Attribute = std::variant<int64_t, double, std::string, Sizes, std::vector<double>>;
using Attributes = std::vector<std::pair<std::string, Attribute>>;

// Returns ONNX's number of a dtype; nothing if it has none.
std::optional<int32_t> onnx_dtype(torch::ScalarType dtype);

class OnnxGraph {
 public:
  explicit OnnxGraph(const TracedModel& model);

  // Lowers the whole model.
  onnx_format::ModelProto model();

  // Returns the name of a tensor; parameters and constants become initializers, numbers tensors without dimensions.
  Name tensor(const torch::jit::Value* value);
  // Returns the elements of a list of tensors or of numbers.
  std::vector<const torch::jit::Value*> list(const torch::jit::Value* value) const;
  // Returns a value that is known now; nothing if it depends on the batch.
  std::optional<c10::IValue> known(const torch::jit::Value* value) const;
  // Returns a constant tensor, or a parameter, with its values; undefined for others.
  torch::Tensor known_tensor(const torch::jit::Value* value) const;

  // Returns whether the size of a dimension depends on the batch.
  bool depends_on_batch(const torch::jit::Value* value, int64_t dim) const;

  // Adds a node with one output, or several, whose names are returned.
  Name add(const std::string& operation, const Names& inputs, const Attributes& attributes = {});
  Names add_many(const std::string& operation, const Names& inputs, const Attributes& attributes, std::size_t outputs);
  // Adds an initializer.
  Name constant(const torch::Tensor& values);
  Name integers(const Sizes& values);

  // Says what the tensor of a value is called, or the tensors of a list.
  void give(const torch::jit::Value* value, Name name) { names_[value] = std::move(name); }
  void give_list(const torch::jit::Value* value, Names names) { lists_[value] = std::move(names); }

  // Fails because the operation of a node has no form, and says where it is.
  [[noreturn]] void refuse(const torch::jit::Node& node, const std::string& why);

 private:
  void lower(const torch::jit::Node& node);
  void lower_own(const torch::jit::Node& node);
  std::string path_of(const torch::jit::Value* value) const;
  c10::IValue attribute(const torch::jit::Value* value) const;
  Name parameter(const std::string& path, const torch::Tensor& values);
  void initialize(const Name& name, const torch::Tensor& values);
  void declare(onnx_format::ValueInfoProto& info, const std::string& name, const torch::Tensor& like) const;
  void add_results();

  const TracedModel& traced_;
  onnx_format::ModelProto model_;
  onnx_format::GraphProto& graph_;
  std::unordered_map<const torch::jit::Value*, Name> names_;
  std::unordered_map<const torch::jit::Value*, Names> lists_;
  std::map<std::string, Name> parameters_;  // by path
  std::map<Sizes, Name> integers_;
  std::string module_;  // the path of the module with the last parameter that was used
  int64_t count_ = 0;   // of names
  int64_t bytes_ = 0;   // of initializers
};

}  // namespace cohort::exports
