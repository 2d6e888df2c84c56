#include "wings/xla/record/backward.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

namespace cohort::record {

namespace {

// Runs on the thread of the device and computes nothing.
struct Nothing final : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& /*gradients*/) override { return {}; }
};

}  // namespace

void settle_backward(const at::Tensor& on_device) {
  const auto nothing = std::make_shared<Nothing>();
  nothing->add_input_metadata(on_device);
  // The thread takes this up when it is done with all that came before.
  torch::autograd::Engine::get_default_engine().execute({torch::autograd::Edge(nothing, 0)}, {on_device},
                                                        /*keep_graph=*/false, /*create_graph=*/false,
                                                        /*accumulate_grad=*/true);
}

}  // namespace cohort::record
