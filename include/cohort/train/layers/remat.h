// Blocks whose activations are not kept: backward computes them again, which takes a second forward pass and the memory
// of the block's input alone (T. Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174;
// torch.utils.checkpoint and keras.remat).
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>

namespace cohort {

struct CheckpointedOptions {
  // Keeps the input in the host's memory until backward instead of the device's. InvalidArgument, in forward: the input
  // is there already.
  bool offload = false;
  std::string name = {};  // of the layer; empty: that of the one layer, or the model gives one
};

// Returns forward(x), where `block` is the module whose parameters forward() uses, without keeping what backward needs:
// backward calls forward() again, with the random numbers, the modes, the autocast and the replica of the first time.
// Buffers are changed by the first call only. Where no gradient is computed it is forward(x). Thread-safe as forward()
// is.
//
// Random numbers are those of Replica::generator() and of LibTorch's default generators; those of another generator are
// drawn anew, and wrong. forward() has one tensor that may need a gradient beside the parameters: x. Backward throws
// InvalidArgument if it used another one. FailedPrecondition: it drew from LibTorch's default generator of the host, as
// torch::dropout does, while several replicas of this process draw from it, too (cohort::Dropout and
// Replica::generator() are each replica's own). Unimplemented: devices of XLA, whose compiler decides itself what is
// computed again; pipelines, whose stages compute microbatches once; second derivatives.
torch::Tensor remat(const std::shared_ptr<torch::nn::Module>& block,
                    const std::function<torch::Tensor(const torch::Tensor&)>& forward, const torch::Tensor& x,
                    const CheckpointedOptions& options = {});

}  // namespace cohort
