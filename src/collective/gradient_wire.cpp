#include "collective/gradient_wire.h"

#include "collective/gradient_compression.h"
#include "device/identity.h"

namespace cohort {

namespace {

void sum_travelling(Communicator& group, torch::Tensor packed, const torch::Tensor& message) {
  group.all_reduce({&packed, 1}, ReduceOp::kSum);
  GradientWire::unpack(packed, message);
}

}  // namespace

GradientWire::GradientWire(const std::string& compression)
    : dtype_(gradient_compression(compression).dtype), has_hook_(gradient_compression(compression).make != nullptr) {}

torch::ScalarType GradientWire::dtype_of(torch::ScalarType gradients) const {
  const bool is_long = gradients == torch::kFloat || gradients == torch::kDouble;
  return is_long ? dtype_.value_or(gradients) : gradients;
}

torch::Tensor GradientWire::packed(const torch::Tensor& message, const ProcessCommunicator& workers) const {
  return workers.adds_in_memory(message) ? message : packed(message);
}

// A hook takes each worker's own gradients.
torch::Tensor GradientWire::sums(ProcessCommunicator& workers, int64_t size, torch::ScalarType dtype) const {
  return has_hook_ ? torch::zeros({size}, dtype) : workers.shared_zeros(size, dtype, dtype_of(dtype));
}

void GradientWire::unpack(const torch::Tensor& came, torch::Tensor message) {
  if (!same_memory(came, message)) message.copy_(came);
}

void GradientWire::all_reduce(Communicator& group, const torch::Tensor& message) const {
  sum_travelling(group, packed(message), message);
}

void GradientWire::all_reduce(ProcessCommunicator& workers, const torch::Tensor& message) const {
  sum_travelling(workers, packed(message, workers), message);
}

}  // namespace cohort
