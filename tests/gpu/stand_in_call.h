// Operations on tensors of the stand-in's cards (stand_in.h): the memory that they share with tensors of the host.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/libtorch_compat.h"
#include "tests/gpu/stand_in.h"

namespace cohort::gpu {

constexpr c10::DispatchKey kCardKey = c10::DispatchKey::VE;
// Keys of a card's tensors. With the CPU's among them, which comes after the card's, LibTorch lets a parameter get data
// on a card in place of those on the host.
constexpr c10::DispatchKeySet kCardKeys({c10::DispatchKey::CPU, kCardKey});

// The card of the calling thread's new tensors.
inline thread_local c10::DeviceIndex current_card = 0;

// Matrix products and convolutions so far, of which every forward pass has some and no update has any.
inline std::atomic<int64_t> products = 0;

// Returns whether the tensor is defined and on a card.
bool on_card(const torch::Tensor& tensor);
// Returns the device that has an index, or the current card.
c10::Device card_or_current(c10::optional<c10::Device> device);

// Returns a tensor of the host in the memory of a card's; one of the host as it is.
torch::Tensor on_host(const torch::Tensor& tensor);
// Returns a tensor of a card in the memory of one of the host.
torch::Tensor moved_to_card(const torch::Tensor& host, c10::Device device);

// Returns the host's storage of which a tensor of a card has the memory.
c10::Storage memory_of(const torch::Tensor& tensor);
// Returns a tensor in a storage, placed there as another one.
torch::Tensor tensor_in(c10::Storage storage, c10::DispatchKeySet keys, const torch::Tensor& like);

// Returns the bytes of a card's tensors, and the most of them so far.
int64_t bytes_on_card(int card);
int64_t most_bytes_on_card(int card);
// Returns and sets the bytes that a card has; 0: as many as one likes.
int64_t limit_of_card();
void set_limit_of_card(int64_t bytes);

// Does an operation of a card, whose arguments and then results are on the stack; within a capture (stand_in_graph.h)
// it is noted.
void call_on_card(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Random numbers of a card are those of a generator of the host.
class CardGenerator final : public compat::Generator {
 public:
  CardGenerator(c10::Device device, at::Generator host)
      : Generator(device, c10::DispatchKeySet(kCardKey)), host_(std::move(host)) {}

  void set_current_seed(uint64_t seed) override { host_.set_current_seed(seed); }
  uint64_t current_seed() const override { return host_.current_seed(); }
  uint64_t seed() override { return host_.seed(); }
  void set_state(const c10::TensorImpl& state) override { host_.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return host_.unsafeGetGeneratorImpl()->get_state(); }
  const at::Generator& host() const { return host_; }

 private:
  CardGenerator* clone_impl() const override {
    return std::make_unique<CardGenerator>(device(), host_.clone()).release();
  }

  at::Generator host_;
};

}  // namespace cohort::gpu
