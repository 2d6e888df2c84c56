#include "wings/function/visitors.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "base/fail.h"
#include "base/libtorch_compat.h"

namespace cohort::detail {

namespace {

// Stands where a result's gradient would go on into the function.
class NoGradient final : public torch::autograd::Node {
 public:
  explicit NoGradient(std::string message) : message_(std::move(message)) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&& /*gradients*/) override {
    fail<Unimplemented>(message_);
  }

 private:
  std::string message_;
};

}  // namespace

void end_gradients(torch::Tensor& result, const std::string& name, torch::Device device) {
  torch::autograd::set_history(result, compat::make_grad_fn<NoGradient>(c10::str(
                                           "[function] ", name, ": gradients do not flow out of a function on ", device,
                                           "; compute them within it (backward, torch::autograd::grad)")));
}

}  // namespace cohort::detail
