// Graphs of the stand-in's cards. While a thread captures, the calls of its operations, and of those of backward passes
// that it begins, are noted with the memory that they used; at the end of the segment all memory from before, and the
// random numbers, are as they were, because a card does nothing then. A replay makes the calls again, in the same
// memory, with the numbers that kernels were given then. Like a card it keeps none of the memory that was there before:
// where that is gone, a replay throws. A capture has a stream of its own; a gradient that is added up on another one
// breaks it off, as it does on a card, and so does an event that is asked for from outside.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/types.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "device/device_graph.h"

namespace cohort::gpu {

class CardCapture final : public c10::DebugInfoBase {
 public:
  using Make = std::function<void(torch::jit::Stack& stack)>;
  using Tensors = std::vector<torch::Tensor>;
  // Memory that was made within a capture belongs to the graph, also when its storage is gone.
  struct Made {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    c10::Storage memory;  // of the host
  };
  using Memory = std::map<const c10::StorageImpl*, Made>;
  using Calls = std::vector<std::function<void()>>;

  // `memory` is that of the graph.
  explicit CardCapture(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}

  // Returns the capture that the calling thread works for; null if there is none.
  static CardCapture* of_thread();

  // Makes a call whose arguments, and then results, are on the stack, and notes it.
  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack, const Make& make);
  // The same for an operation that is not on a stack.
  Tensors call(const Tensors& given, const std::function<Tensors(const Tensors&)>& make);
  // Calls a kernel on memory of these tensors, and notes it.
  void call(std::span<const torch::Tensor> tensors, const std::function<void()>& kernel);
  // Takes notice of new memory.
  void note_made(const torch::Tensor& tensor);

  // Makes everything as it was before the segment and returns its calls.
  Calls end();

 private:
  // A tensor of a card, without the tensor.
  class Place;
  class Argument;

  static void put(const Place& place, const torch::Tensor& value);
  void note_given(const c10::IValue& value);
  // Finds out which memory of before the call that was given these values has changed.
  void note_changes(const std::vector<c10::IValue>& given);
  void keep(const at::Generator& generator);
  Place place_of(const torch::Tensor& tensor);
  Argument argument_of(const c10::IValue& value);

  std::recursive_mutex mutex_;
  Calls calls_;
  std::shared_ptr<Memory> memory_;
  std::set<const c10::StorageImpl*> fresh_;  // what of it was made in this segment
  struct Before {
    c10::Storage storage;
    std::vector<char> bytes;
    bool is_changed = false;  // else others may change it before the capture ends
  };
  std::map<const c10::StorageImpl*, Before> before_;
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
};

// Returns whether the calling thread captures.
bool is_capturing();
// The streams of the calling thread: the one that is always there, that of its captures, and others with higher
// numbers.
constexpr c10::StreamId kDefaultStream = 0;
constexpr c10::StreamId kCaptureStream = 1;
inline thread_local c10::StreamId chosen_stream = kDefaultStream;
inline c10::StreamId current_stream() {
  return is_capturing() ? kCaptureStream : chosen_stream;
}

// Counts something that the calling thread gives a card: an operation, also one that makes a view, a kernel, a copy.
void note_work();

std::unique_ptr<DeviceGraph> make_card_graph();

}  // namespace cohort::gpu
