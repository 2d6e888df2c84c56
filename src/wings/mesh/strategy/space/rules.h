// Rules: how each of LibTorch's operations is done with divided tensors. A rule is a function in a table, by the
// operation's name; a file of rules adds its own (rules.cpp lists the files).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKey.h>
#include <torch/types.h>

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "wings/mesh/strategy/space/divided.h"

namespace cohort::space {

// Makes LibTorch's dispatcher hand operations with divided tensors to the rules, once a process.
void install_rules();

// One call of an operation, whose arguments are on the stack.
class DividedCall {
 public:
  DividedCall(const c10::OperatorHandle& op, torch::jit::Stack& stack);

  // Returns the operation's name with its overload, such as "aten::sum.dim_IntList".
  const std::string& name() const { return name_; }
  // Returns the name without overload and namespace, such as "sum".
  std::string short_name() const;
  // Returns whether it changes its first argument, and returns it.
  bool in_place() const;
  // Returns whether it changes another argument, such as one for the result.
  bool writes_elsewhere() const;

  std::size_t size() const { return size_; }
  c10::IValue& operator[](std::size_t i) { return stack_[stack_.size() - size_ + i]; }
  // Returns the argument of this name; nullopt if there is none.
  std::optional<std::size_t> find(std::string_view name) const;
  // Returns an argument that is a tensor; undefined if it is None.
  torch::Tensor tensor(std::size_t i) { return (*this)[i].isTensor() ? (*this)[i].toTensor() : torch::Tensor(); }
  // Returns the first divided tensor among the arguments, in lists too.
  torch::Tensor divided();

  // Calls the operation with the arguments as they are now. The results take their place.
  void forward();
  // Puts results in the place of the arguments.
  void finish(std::vector<c10::IValue> results);
  // Divides the results of forward(), tensors and lists of them, by this layout; the sizes are those of each one, with
  // those of the layout where it is cut.
  void divide_results(const Layout& layout);

  // Throws Unimplemented: the operation cannot be done with a divided tensor, for this reason.
  [[noreturn]] void refuse(const std::string& why);

 private:
  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  std::size_t size_;
  std::string name_;
};

using Rule = std::function<void(DividedCall&)>;
using Rules = std::unordered_map<std::string, Rule>;

void add_pointwise_rules(Rules& rules);
void add_shape_rules(Rules& rules);
void add_reduction_rules(Rules& rules);
void add_window_rules(Rules& rules);
void add_convolution_rules(Rules& rules);
void add_resampling_rules(Rules& rules);
void add_norm_rules(Rules& rules);
void add_product_rules(Rules& rules);
void add_attention_rules(Rules& rules);

// Returns the part of a tensor that goes with parts by `layout`: dimensions are matched from the last one on, those of
// size 1 are whole. A whole tensor gets the sum of the gradients of all parts.
torch::Tensor matching_part(DividedCall& call, const torch::Tensor& tensor, const Layout& layout);
// Returns a tensor that each replica has whole, such as a weight, for use beside parts; undefined stays undefined.
torch::Tensor shared(const torch::Tensor& whole, const Layout& layout);
// Returns dim, counted from 0.
int64_t wrapped(int64_t dim, int64_t rank);
// Returns whether each replica of the grid's line has as many classes of dimension `dim`, and all else is whole.
bool has_classes_in_parts(const Layout& layout, int64_t dim);
// Do softmax() and log_softmax(), nll_loss() and argmax() of such classes, which stay in parts.
void call_softmax_of_classes(DividedCall& call, int64_t dim);
void call_nll_of_classes(DividedCall& call);
void call_argmax_of_classes(DividedCall& call, int64_t dim);
// Does an operation elementwise: every tensor among the arguments is broadcast, and the results are divided likewise.
void call_pointwise(DividedCall& call);
// Does an operation with whole tensors: divided ones are gathered.
void call_whole(DividedCall& call);
// Returns a part of these sizes, without elements, that is connected to tensors so that their gradients are zeros.
torch::Tensor empty_part(const std::vector<int64_t>& sizes, const std::vector<torch::Tensor>& from);

// Returns at::constant_pad_nd(), which refuses results without elements.
torch::Tensor pad(const torch::Tensor& part, const std::vector<int64_t>& padding, const at::Scalar& fill);

}  // namespace cohort::space
