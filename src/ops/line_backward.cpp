#include "ops/line_backward.h"

#include <ATen/Functions.h>
#include <ATen/record_function.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <typeinfo>
#include <utility>

#include "base/libtorch_compat.h"
#include "ops/plain_tensor.h"

namespace cohort {

namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

using Line = c10::SmallVector<Node*, 16>;
using Leaves = c10::SmallVector<AccumulateGrad*, 32>;

// Returns the leaf at an edge's end, or null. Runs too often for a cast that looks for derived classes.
AccumulateGrad* leaf_of(const Edge& edge) {
  Node& node = *edge.function;
  return typeid(node) == typeid(AccumulateGrad) ? static_cast<AccumulateGrad*>(&node) : nullptr;
}

bool is_watched() {
  return torch::autograd::AnomalyMode::is_enabled() || at::hasCallbacks() ||
         torch::autograd::get_current_graph_task_exec_info() != nullptr;
}

// Finds the leaves and the node that a node leads to. Returns false if the graph is not a line there.
bool follow(Node& node, Leaves& leaves, Node*& next) {
  next = nullptr;
  for (const Edge& edge : node.next_edges()) {
    if (!edge.is_valid()) continue;
    AccumulateGrad* const leaf = leaf_of(edge);
    if (leaf == nullptr) {
      if (next != nullptr) return false;
      next = edge.function.get();
      continue;
    }
    // The engine adds up what comes to a leaf from several nodes before it gives it to the leaf.
    const bool is_first = std::find(leaves.begin(), leaves.end(), leaf) == leaves.end();
    const torch::Tensor& parameter = leaf->variable;
    const bool has_hooks =
        compat::node_has_hooks(*leaf) || compat::has_hooks(parameter) || compat::has_hooks_of_sum(parameter);
    if (!is_first || has_hooks) return false;
    leaves.push_back(leaf);
  }
  return true;
}

// Returns the nodes of the line that begins at the loss, or none if the graph is not a line. Finds their leaves.
Line line_from(const torch::Tensor& loss, Leaves& leaves) {
  Line line;
  if (loss.dim() != 0 || !is_plain(loss) || is_watched()) return line;
  Node* node = loss.grad_fn().get();
  while (node != nullptr) {
    Node* next = nullptr;
    if (dynamic_cast<LineNode*>(node) == nullptr || compat::node_has_hooks(*node) || !follow(*node, leaves, next))
      return {};
    line.push_back(node);
    node = next;
  }
  return line;
}

// Gives a leaf its gradient. The leaf's own node would ask LibTorch for another handle of it.
void give(AccumulateGrad& leaf, torch::Tensor gradient) {
  const torch::Tensor& parameter = leaf.variable;
  torch::Tensor& sum = parameter.mutable_grad();
  const bool takes = !sum.defined() && parameter.requires_grad() && is_own(gradient) && is_plain(gradient) &&
                     gradient.strides() == parameter.strides() && gradient.sizes() == parameter.sizes();
  if (takes) {
    sum = std::move(gradient);
    return;
  }
  variable_list only(1);  // not of a list in braces, which would have a handle, too
  only.front() = std::move(gradient);
  leaf(std::move(only));
}

void run(const Line& line, torch::Tensor gradient, uint32_t place) {
  const at::AutoGradMode values_only(false);
  for (Node* node : line) {
    variable_list given(node->num_inputs());
    given[place] = std::move(gradient);
    gradient = torch::Tensor();
    node->will_release_variables();
    variable_list made = (*node)(std::move(given));
    node->release_variables();
    for (std::size_t i = 0; i < made.size(); ++i) {
      const Edge& edge = node->next_edge(i);
      if (!edge.is_valid() || !made[i].defined()) continue;
      if (AccumulateGrad* const leaf = leaf_of(edge)) {
        give(*leaf, std::move(made[i]));
      } else {
        gradient = std::move(made[i]);
        place = edge.input_nr;
      }
    }
  }
}

void run(const Line& line, const torch::Tensor& loss) {
  run(line, at::scalar_tensor(1, loss.options().requires_grad(false)), static_cast<uint32_t>(loss.output_nr()));
}

bool contains(const std::vector<torch::Tensor>& tensors, const torch::Tensor& wanted) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const auto& each) { return each.is_same(wanted); });
}

}  // namespace

void run_backward(const torch::Tensor& loss) {
  Leaves reached;
  const Line line = line_from(loss, reached);
  if (line.empty()) return loss.backward();
  run(line, loss);
}

// The engine does not compute the gradients that nobody gets.
void run_backward_for(const torch::Tensor& loss, const std::vector<torch::Tensor>& leaves) {
  Leaves reached;
  const Line line = line_from(loss, reached);
  const auto is_wanted = [&](const AccumulateGrad* leaf) { return contains(leaves, leaf->variable); };
  if (!line.empty() && std::all_of(reached.begin(), reached.end(), is_wanted)) return run(line, loss);
  std::vector<torch::Tensor> wanted;  // the engine refuses those that have been frozen
  for (const torch::Tensor& leaf : leaves) {
    if (leaf.requires_grad()) wanted.push_back(leaf);
  }
  if (wanted.empty()) return;
  loss.backward(/*gradient=*/{}, /*retain_graph=*/{}, /*create_graph=*/false, at::TensorList(wanted));
}

}  // namespace cohort
