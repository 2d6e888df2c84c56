// Backward passes along a line of this library's ops. LibTorch's engine finds its way through any graph. For a small
// layer that takes longer than its gradients, and a line has only one way.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

#include <vector>

namespace cohort {

// A node of autograd that asks nothing of the engine. Its gradients need no check: each has the shape, the dtype and
// the device of its input.
class LineNode : public torch::autograd::Node {
 protected:
  using Node::Node;
};

// Adds the gradients of a scalar to those of its leaves, as loss.backward() does, with the same bits. Calls
// loss.backward() unless the graph is a line: each node is a LineNode that leads to leaves and at most one other node.
// Also calls it where something could tell the difference: hooks, anomaly mode, profilers, an outer backward pass.
void run_backward(const torch::Tensor& loss);

// Does the same for the gradients of these leaves alone. The scalar's other leaves get no gradient.
void run_backward_for(const torch::Tensor& loss, const std::vector<torch::Tensor>& leaves);

}  // namespace cohort
