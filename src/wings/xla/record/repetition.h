// Repetition: a piece of a program that is recorded again and again for the sake of its numbers alone, such as an
// optimizer's update. Its operations are noted once. Later, as long as the same operations come in the same order on
// the same tensors, nothing is recorded: each returns what it returned then, and its numbers are collected.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/types.h>

#include <optional>
#include <vector>

#include "wings/xla/record/graph.h"
#include "wings/xla/record/operations.h"

namespace cohort::record {

// One thread at a time, under the lock of the recording of the device.
class Repetition {
 public:
  // While it lives, what this thread records is noted or repeated.
  class Scope {
   public:
    explicit Scope(Repetition& repetition);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();
  };

  // Returns the one whose scope lives on this thread, or null.
  static Repetition* here();

  // Begins to note. From finish() on the operations are repeated, unless one of them cannot be: its tensors have no
  // values any more then.
  void begin();
  void finish();
  bool is_noted() const { return noted_; }

  // Begins to repeat. Afterwards repeated() says whether all operations came again, and numbers() has their numbers in
  // the order in which they would have been recorded.
  void repeat();
  bool repeats() const { return repeats_; }
  bool repeated() const { return repeats_ && next_ == steps_.size(); }
  const std::vector<at::Scalar>& numbers() const { return numbers_; }

  // For the kernels. take() returns true if the operation is repeated: the stack has the results in the place of the
  // arguments. note() notes an operation that was recorded instead; `info` is null for views, which have no numbers.
  bool take(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  void note(const c10::OperatorHandle& op, const OperationInfo* info, const std::vector<c10::IValue>& arguments,
            const torch::jit::Stack& stack);
  // The same for make_parameter().
  torch::Tensor take_parameter(const TensorType& type, torch::Device device);
  void note_parameter(const torch::Tensor& parameter);
  // Something is done that is neither noted nor repeated.
  void spoil() { repeats_ = is_noting_ = false; }

 private:
  // What an argument has to be.
  enum class Kind { kTensor, kTensors, kNumber, kValue, kIgnored };
  struct Step {
    std::optional<c10::OperatorHandle> op;  // nothing: a parameter, the only result
    std::vector<Kind> kinds;
    std::vector<c10::IValue> arguments;
    std::vector<c10::IValue> results;
  };

  static Kind kind_of(const c10::IValue& argument, bool is_lifted);
  static bool is_same(Kind kind, const c10::IValue& noted, const c10::IValue& came);
  bool takes(const Step& step, const c10::IValue* arguments, std::vector<at::Scalar>& numbers) const;

  std::vector<Step> steps_;
  bool noted_ = false;
  bool is_noting_ = false;
  bool repeats_ = false;
  std::size_t next_ = 0;
  std::vector<at::Scalar> numbers_;
};

}  // namespace cohort::record
