// The rules by which operations of LibTorch become nodes of ONNX.
#pragma once

#include <string>
#include <unordered_map>

#include "wings/export/train/onnx/onnx_graph.h"

namespace cohort::exports {

// An operation of the traced graph with its inputs, as a rule reads them.
struct TracedOperation {
  OnnxGraph& to;
  const torch::jit::Node& node;

  const torch::jit::Value* in(std::size_t i) const { return node.input(i); }
  // Returns whether there is such an input and it is not None.
  bool has(std::size_t i) const;
  // Returns a tensor's name; an empty one for None. With a dtype: of the tensor in that dtype.
  Name x(std::size_t i) const { return has(i) ? to.tensor(in(i)) : Name(); }
  Name x_as(std::size_t i, torch::ScalarType dtype) const;
  // Returns what an input is, which has to be known now.
  int64_t integer(std::size_t i) const;
  double number(std::size_t i) const;
  bool flag(std::size_t i) const;
  std::string text(std::size_t i) const;
  Sizes integers(std::size_t i) const;
  // Returns a dimension of the first input, counted from its beginning.
  int64_t dim(std::size_t i, std::size_t of = 0) const;

  // Returns what tracing has found about an input or an output.
  torch::ScalarType dtype(std::size_t i) const { return dtype_of(in(i)); }
  int64_t rank(std::size_t i) const { return static_cast<int64_t>(sizes(i).size()); }
  Sizes sizes(std::size_t i) const { return sizes_of(in(i)); }
  // Returns the size of a dimension, which may not depend on the batch.
  int64_t known_size(std::size_t i, int64_t dim) const;
  torch::ScalarType out_dtype() const { return dtype_of(node.output(0)); }
  Sizes out_sizes() const { return sizes_of(node.output(0)); }
  torch::ScalarType dtype_of(const torch::jit::Value* value) const;
  Sizes sizes_of(const torch::jit::Value* value) const;
  bool is_tensor(std::size_t i) const { return in(i)->type()->isSubtypeOf(*c10::TensorType::get()); }

  // Returns the sizes of a list as a tensor of ONNX. With may_infer one size that depends on the batch may be -1.
  Name shape(std::size_t i, bool may_infer) const;

  // Adds nodes.
  Name add(const std::string& operation, const Names& inputs, const Attributes& attributes = {}) const {
    return to.add(operation, inputs, attributes);
  }
  Name cast(const Name& x, torch::ScalarType from, torch::ScalarType dtype) const;
  // Returns a constant with one element, of no dimensions.
  Name scalar(double value, torch::ScalarType dtype) const;
  void give(const Name& name) const { to.give(node.output(0), name); }

  [[noreturn]] void refuse(const std::string& why) const { to.refuse(node, why); }
};

using Rule = void (*)(const TracedOperation& op);
using Rules = std::unordered_map<std::string, Rule>;

// Returns the rule of an operation, such as "aten::relu"; null for none.
Rule find_rule(const std::string& operation);

// Add the rules of a family.
void add_elementwise_rules(Rules& rules);
void add_pointwise_rules(Rules& rules);
void add_shape_rules(Rules& rules);
void add_part_rules(Rules& rules);
void add_creation_rules(Rules& rules);
void add_linear_rules(Rules& rules);
void add_convolution_rules(Rules& rules);
void add_normalization_rules(Rules& rules);
void add_reduction_rules(Rules& rules);
void add_recurrent_rules(Rules& rules);

}  // namespace cohort::exports
