// A Program is a recorded computation by itself: operations in the order in which they run, which values come in, which
// go out, and which of these may take the memory of those. It holds no tensor and no number that changes, so one
// program serves every step, every device and every replica with the same signature.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "wings/xla/base/recent.h"
#include "wings/xla/record/graph.h"

namespace cohort::record {

// A value of a program: output `index` of operation `operation`; where operation is -1, input `index`, or, where
// element is not -1, that element of it as a tensor without dimensions.
struct Place {
  int operation = -1;
  int index = 0;
  int64_t element = -1;
  bool operator==(const Place&) const = default;
};
using PlaceArgument = std::variant<std::monostate, Place, std::vector<std::optional<Place>>, c10::IValue>;

struct Operation {
  std::string op;
  std::vector<PlaceArgument> arguments;
  std::vector<TensorType> outputs;
  torch::ScalarType common = torch::ScalarType::Undefined;
  std::string layer;
};

struct Loop;

struct ProgramInput {
  enum class Kind {
    kData,     // the value of a tensor
    kScalars,  // all numbers of one dtype, in one vector: they change from step to step and travel together
  };
  Kind kind = Kind::kData;
  TensorType type;
  // The name of the tensor, such as "layer3.conv1.weight"; empty if it has none. Not a part of the signature.
  std::string name;
};

// Immutable and thread-safe.
class Program {
 public:
  // Inputs of the kind kData come first.
  const std::vector<ProgramInput>& inputs() const { return inputs_; }
  const std::vector<Operation>& operations() const { return operations_; }
  const std::vector<Place>& outputs() const { return outputs_; }
  // Returns whether there are sums over replicas among the operations.
  bool has_sums() const { return has_sums_; }
  TensorType type_of(const Place& place) const;

  // Returns for each output the input whose memory it may take, or -1. Such an input's value is gone after a run.
  const std::vector<int>& aliases() const { return aliases_; }

  // Returns what is run in a loop (loop.h), or null: a program that is recorded runs once.
  const std::shared_ptr<const Loop>& loop() const { return loop_; }

  // Returns a text of everything that makes the program: operations, shapes, dtypes, attributes, aliases; no names and
  // no lifted numbers. Two programs with the same text are the same program.
  const std::string& signature() const { return signature_; }
  // Returns a hash of the signature, the same in every process, and it as 16 hexadecimal digits.
  uint64_t fingerprint() const { return fingerprint_; }
  std::string hash() const;

 private:
  friend class Capture;
  friend class LoopProgram;

  std::vector<ProgramInput> inputs_;
  std::vector<Operation> operations_;
  std::vector<Place> outputs_;
  std::vector<int> aliases_;
  bool has_sums_ = false;
  std::string signature_;
  uint64_t fingerprint_ = 0;
  std::shared_ptr<const Loop> loop_;
};

// The programs that were captured, by their signatures: those that were captured last, and all that somebody holds, so
// that there is one object for a signature. Thread-safe.
class ProgramCache {
 public:
  // Returns the program with that signature, or null.
  std::shared_ptr<const Program> find(const std::string& signature);
  // Adds a program and returns the one with its signature, which another thread may have added before. Of those that
  // nobody else holds at most `most` stay.
  std::shared_ptr<const Program> add(std::shared_ptr<const Program> program, std::size_t most);
  // Returns how many there are.
  std::size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<const Program>> programs_;
  Recent<const Program*, std::shared_ptr<const Program>> recent_;
};

// A program with what it is to be run with.
struct Captured {
  std::shared_ptr<const Program> program;
  // The leaves of the inputs of the kind kData, in their order.
  std::vector<Value> data;
  // The vectors of the inputs of the kind kScalars, on the host.
  std::vector<torch::Tensor> scalars;
  // The leaves of these vectors' elements.
  std::vector<std::vector<std::shared_ptr<Node>>> numbers;
  // Whether the program is new in the cache.
  bool is_new = false;
};

// Returns the numbers as a vector of the dtype, on the host.
torch::Tensor pack_numbers(torch::ScalarType dtype, std::span<const at::Scalar> numbers);

// Makes the program that computes the outputs. donors[i], if it is not null, is a leaf whose value nobody needs after
// the run; output i takes its memory if the types are the same and the program reads it. donors may be empty.
Captured capture(std::span<const Value> outputs, std::span<const std::shared_ptr<Node>> donors, ProgramCache& cache);

}  // namespace cohort::record
