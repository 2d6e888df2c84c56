// GradientWire: the form in which gradients travel (ExchangeOptions::gradient_compression). The half types are as in
// PyTorch's communication hooks bf16_compress_hook and fp16_compress_hook. A loss is a replica's share of the mean over
// the global batch, so that its gradients are divided by the number of replicas before they are rounded, as there.
#pragma once

#include <torch/types.h>

#include <optional>
#include <string>

#include "cohort/communicator.h"
#include "collective/process/process_communicator.h"

namespace cohort {

class GradientWire {
 public:
  // InvalidArgument: there is no such compression. Unimplemented: this build lacks its wing.
  explicit GradientWire(const std::string& compression);

  // Returns whether messages are shorter than the gradients.
  bool compresses() const { return dtype_.has_value() || has_hook_; }
  // Returns whether a hook sums the gradients (step/exchange/comm_hook.h), for which this class does nothing.
  bool has_hook() const { return has_hook_; }
  // Returns the dtype in which gradients of this one travel: a half type for float32 and float64, else their own.
  torch::ScalarType dtype_of(torch::ScalarType gradients) const;
  // Returns a message as it travels: itself, or a rounded copy.
  torch::Tensor packed(const torch::Tensor& message) const { return message.to(dtype_of(message.scalar_type())); }
  // Does the same for one that goes to other workers. In memory that they share nothing travels.
  torch::Tensor packed(const torch::Tensor& message, const ProcessCommunicator& workers) const;
  // Puts what came into the message that it was packed from.
  static void unpack(const torch::Tensor& came, torch::Tensor message);

  // Returns flat zeros for the sums over the workers. Those of one machine share the memory, if the sums are exact.
  torch::Tensor sums(ProcessCommunicator& workers, int64_t size, torch::ScalarType dtype) const;

  // Sums a message over the ranks, in place.
  void all_reduce(Communicator& group, const torch::Tensor& message) const;
  void all_reduce(ProcessCommunicator& workers, const torch::Tensor& message) const;

 private:
  std::optional<torch::ScalarType> dtype_;  // nothing: the gradients' own
  bool has_hook_;
};

}  // namespace cohort
