// The graph of recorded operations. A node is one LibTorch operation whose arguments are values of other nodes and
// attributes; all shapes are static. Views and writes in place do not occur in it: a tensor that is written gets
// another value (cell.h). Leaves are values that lie on a device already, and numbers that change from step to step
// without changing the program.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cohort::record {

struct TensorType {
  torch::ScalarType dtype = torch::kFloat;
  std::vector<int64_t> sizes;

  int64_t numel() const;
  bool operator==(const TensorType&) const = default;
};

// Writes a type as "f32[2, 3]".
std::string to_string(const TensorType& type);

// The value of a tensor on a device. What it is, only the runner knows (runner.h).
class DeviceData {
 public:
  virtual ~DeviceData() = default;
};

// A value that still lies on the host; it goes to the device with the first program that needs it. The tensor is never
// written to.
class HostData final : public DeviceData {
 public:
  explicit HostData(torch::Tensor tensor) : tensor_(std::move(tensor)) {}
  const torch::Tensor& tensor() const { return tensor_; }

 private:
  torch::Tensor tensor_;
};

class Node;

// One output of a node, or nothing.
struct Value {
  std::shared_ptr<Node> node;
  int output = 0;

  explicit operator bool() const { return node != nullptr; }
  const TensorType& type() const;
  bool operator==(const Value&) const = default;
};

// An argument of an operation: nothing, a value, a list of values (some of which may be nothing), or an attribute.
using Argument = std::variant<std::monostate, Value, std::vector<Value>, c10::IValue>;

// The leaves: data is a value on the device (or, without data, a parameter that the caller of capture() fills in),
// scalar is a number.
inline constexpr const char* kDataOp = "data";
inline constexpr const char* kScalarOp = "scalar";
// The sum over the replicas of the program.
inline constexpr const char* kAllReduceOp = "cohort::all_reduce";
// The value itself, divided among the cores of a replica as its second argument says: the tiles in each dimension.
inline constexpr const char* kShardOp = "cohort::shard";

// What is noted of an operation. Immutable after it was recorded, except for `data`, which a flush fills in and which
// only the device's Recording touches, under its lock.
class Node {
 public:
  // The name is LibTorch's functional one with its overload, such as "aten::add.Tensor".
  std::string op;
  std::vector<Argument> arguments;
  // The results. A result that is not asked for (a gradient that nobody needs) has the dtype Undefined.
  std::vector<TensorType> outputs;
  // The dtype in which operands meet, which is that of the result except for comparisons.
  torch::ScalarType common = torch::ScalarType::Undefined;
  // The name of the module in which the operation runs, such as "layer3.conv1", or empty if it is not known. In a leaf:
  // the name of the tensor, such as "layer3.conv1.weight".
  std::string layer;
  // The number of a leaf "scalar".
  at::Scalar number;
  // The values of the outputs, once they are on the device. Not empty: the node is a leaf.
  std::vector<std::shared_ptr<DeviceData>> data;

  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  // Gives up the nodes that only this one held, one after the other: graphs are deeper than stacks.
  ~Node();

  // Returns whether the node's arguments do not matter, because its values are there or come from outside.
  bool is_leaf() const { return !data.empty() || op == kDataOp || op == kScalarOp; }
};

// Returns the module that an operation with these arguments belongs to: that of a named tensor that it reads, also as a
// view or converted, else that of the operation before it; for a gradient, that of the operation whose result it takes
// beside the gradient.
std::string layer_of(const std::string& op, const std::vector<Argument>& arguments);
// Fails with Unimplemented, because an operation cannot be recorded or lowered: "aten::x in layer l <why>; <remedy>".
// `layer` may be empty.
[[noreturn]] void refuse_operation(std::string_view op, std::string_view layer, std::string_view why,
                                   std::string_view remedy);

// Makes a leaf for a value on the device; null: a parameter.
Value make_data(const TensorType& type, std::shared_ptr<DeviceData> data);
// Makes a leaf for a number; the dtype is the one that the program computes with.
Value make_scalar(const at::Scalar& number, torch::ScalarType dtype);

// Collects the leaves that make_scalar() makes on this thread while it lives. One at a time.
class LiftedNumbers {
 public:
  LiftedNumbers();
  LiftedNumbers(const LiftedNumbers&) = delete;
  LiftedNumbers& operator=(const LiftedNumbers&) = delete;
  ~LiftedNumbers();
  // Returns them in the order in which they were made.
  const std::vector<std::shared_ptr<Node>>& nodes() const { return nodes_; }
  // Returns how many the one that lives on this thread has collected; 0 if there is none.
  static std::size_t count_here();

 private:
  friend Value make_scalar(const at::Scalar& number, torch::ScalarType dtype);
  std::vector<std::shared_ptr<Node>> nodes_;
};

// While it lives, make_scalar() gives on this thread the leaves of `known`, one after the other, as long as they have
// the number and the dtype that is wanted; from then on, and where there are none, it makes new ones and adds them. So
// pieces of a program with the same numbers share them. One at a time.
class SharedNumbers {
 public:
  explicit SharedNumbers(std::vector<std::shared_ptr<Node>>& known);
  SharedNumbers(const SharedNumbers&) = delete;
  SharedNumbers& operator=(const SharedNumbers&) = delete;
  ~SharedNumbers();

 private:
  friend Value make_scalar(const at::Scalar& number, torch::ScalarType dtype);
  std::shared_ptr<Node> find(const at::Scalar& number, torch::ScalarType dtype);

  std::vector<std::shared_ptr<Node>>& known_;
  std::size_t next_ = 0;
};

// Calls fn(value) for every value among the arguments, in their order.
template <typename Fn>
void each_value(const std::vector<Argument>& arguments, const Fn& fn) {
  for (const Argument& argument : arguments) {
    if (const auto* value = std::get_if<Value>(&argument)) fn(*value);
    if (const auto* list = std::get_if<std::vector<Value>>(&argument)) {
      for (const Value& value : *list) {
        if (value) fn(value);
      }
    }
  }
}

}  // namespace cohort::record
