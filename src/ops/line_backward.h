// Backward passes along a line of operations of our own: LibTorch's engine, which finds its way through any graph,
// takes longer to ask after a small layer than its gradients take. The line has one way, so nothing is to be found.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

#include <vector>

namespace cohort {

// A node of autograd whose gradients nobody needs to check, because they have the shape, the dtype and the device of
// what they are the gradients of, and that asks nothing of the engine.
class LineNode : public torch::autograd::Node {
 protected:
  using Node::Node;
};

// Adds the gradients of a scalar to those of the leaves that it depends on, as loss.backward() does, which is called
// unless nothing can tell the difference: from the loss on each node is a LineNode that leads to leaves and at most one
// other node, there are no hooks, and nobody looks on (anomaly mode, profilers, a backward pass that this is a part
// of). Gradients, and what else can be seen of the graph afterwards, are the same, bit by bit.
void run_backward(const torch::Tensor& loss);

// Does the same for the gradients of these leaves alone. Others on which the scalar depends get none.
void run_backward_for(const torch::Tensor& loss, const std::vector<torch::Tensor>& leaves);

}  // namespace cohort
