// LibTorch's generator of random numbers for a recorded device.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/types.h>

#include "base/libtorch_compat.h"

namespace cohort::record {

// Its state is a recorded tensor, so drawing is recorded like any other operation. One thread at a time.
class RecordedGenerator final : public compat::Generator {
 public:
  RecordedGenerator(torch::Device device, uint64_t seed);

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override { return seed_; }
  // Takes a seed that nobody chose.
  uint64_t seed() override;
  // The state is an int64 tensor of two elements.
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  const torch::Tensor& state() const { return state_; }

 private:
  RecordedGenerator* clone_impl() const override;

  uint64_t seed_ = 0;
  torch::Tensor state_;
};

// Makes a generator for the device, which is one of recording_of()'s.
at::Generator make_generator(torch::Device device, uint64_t seed);

// Seeds the streams of xla:0 to xla:(devices - 1) by LibTorch's seed, now and whenever torch::manual_seed() sets it.
// LibTorch's generator of the host is another object afterwards, with the same state.
void follow_manual_seed(int devices);

}  // namespace cohort::record
