// Terms of the loss that modules add in forward(), as Keras' layers do by self.add_loss().
//
//   torch::Tensor forward(const torch::Tensor& x) {
//     ...
//     cohort::add_loss(0.001 * kl_divergence);
#pragma once

#include <torch/types.h>

namespace cohort {

// Adds a term to the loss of the model that calls this module: a scalar, such as a mean over the examples of x. Other
// shapes are summed. fit(), evaluate() and Model::losses() count it as the regularizers' terms: if the shares of the
// replicas differ, each weighs as much as its examples. Without such a call, as in predict() or where a module is
// called by itself, there is no loss to add to, and nothing happens. FailedPrecondition: the term has no gradients in
// training, because it is computed within Checkpointed or under a NoGradGuard. InvalidArgument: it is undefined or not
// a floating-point tensor.
void add_loss(const torch::Tensor& term);

}  // namespace cohort
