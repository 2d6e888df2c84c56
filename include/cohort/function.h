// cohort::function: a function on tensors that is recorded once for each signature of its arguments, and run again as
// one program (tf.function).
//
//   auto step = cohort::function([&](const torch::Tensor& x, const torch::Tensor& y) {
//     const torch::Tensor loss = torch::mse_loss(net->forward(x), y);
//     loss.backward();
//     return loss;
//   }, {.name = "step"});
//   step(x, y);
//
// A signature has the shapes, dtypes and devices of the tensors and the values of everything else. On a device that
// records (TPU, XLA) the function is called once a signature; what it records is run at that call and at the later
// ones. On other devices (CPU, GPU) it runs at every call, with the same results; signatures are kept and checked
// there, too. docs/functions.md says what is recorded, what is captured, and what side effects become.
#pragma once

#include <torch/types.h>

#include <any>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/example.h"
#include "cohort/values.h"
#include "cohort/variable.h"

namespace cohort {

class Replica;

// The size in a TensorSpec that stands for any size.
inline constexpr int64_t kAnySize = -1;

// A tensor that is described instead of given (tf.TensorSpec).
struct TensorSpec {
  // The sizes, some of which may be kAnySize; unset: any shape.
  std::optional<std::vector<int64_t>> shape = std::nullopt;
  torch::ScalarType dtype = torch::kFloat;  // the dtype, which a tensor has to have
  std::string name = "";                    // a name for messages
};

struct FunctionOptions {
  std::string name = "function";  // a name for messages, warnings and the program's text
  // What every tensor among the arguments has to be, in their order; there are no other arguments then (but a Replica).
  // All that fit share one signature. Unset: each call has the signature of its arguments.
  std::optional<std::vector<TensorSpec>> input_signature = std::nullopt;
  // A signature that differs from a known one in sizes only is taken with any size where they differ, so that further
  // sizes there are no retracing. On a device that records, each shape still has a program of its own.
  bool reduce_retracing = false;
  // The most signatures whose recordings are kept, for each device that records. Beyond them the one that was called
  // longest ago is given up, and recorded again when it comes again. Of graphs of a card there are at most 8, and
  // signatures beyond them run as they are. InvalidArgument: it is less than 1.
  int64_t kept_signatures = 128;
  // Whether the function is compiled: by XLA where the device records, by a graph of the device where its work can be
  // captured (CUDA graphs; docs/functions.md). Unset: where the device records. InvalidArgument, at a call: true on a
  // device that does neither, false on one that records.
  std::optional<bool> jit_compile = std::nullopt;
};

// What one run of a program takes, as the plugin estimates it. What it does not tell is unset.
struct FunctionCost {
  std::optional<double> flops = std::nullopt;           // floating-point operations
  std::optional<double> bytes_accessed = std::nullopt;  // bytes read and written
  std::optional<int64_t> peak_bytes = std::nullopt;     // the most memory of the device at one time
};

class ConcreteFunctionState;

// One signature of a function, with its program (tf.types.experimental.ConcreteFunction). A handle; thread-safe.
class ConcreteFunction {
 public:
  // Returns the signature, such as "step(f32[32, 10] xla:0, 3)".
  const std::string& signature() const;
  // Returns the program as StableHLO text. Unimplemented: the device does not record, so there is none.
  std::string text() const;
  // Returns the plugin's estimate of one run; compiles the program if that was not done yet. Errors as text(), and
  // FailedPrecondition: no plugin is open.
  FunctionCost cost() const;

 private:
  friend class Access;
  explicit ConcreteFunction(std::shared_ptr<const ConcreteFunctionState> state) : state_(std::move(state)) {}
  std::shared_ptr<const ConcreteFunctionState> state_;
};

// Writes the signature and, where there is a program, its cost and text.
std::ostream& operator<<(std::ostream& out, const ConcreteFunction& function);

// Says whether functions run without being recorded, and without looking at signatures, in the whole process: for
// debugging, as values can be read then. At first they do not (tf.config.run_functions_eagerly). Thread-safe.
void run_functions_eagerly(bool run_eagerly);
// Returns what was said last (tf.config.functions_run_eagerly).
bool functions_run_eagerly();

namespace detail {

// Walks through the arguments or the result of a function.
class FunctionVisitor {
 public:
  virtual ~FunctionVisitor() = default;
  virtual void tensor(torch::Tensor& tensor) = 0;
  // A tensor that is described only.
  virtual void spec(const TensorSpec& spec, torch::Tensor& tensor) = 0;
  // A value that is a part of the signature. One that begins with a bracket is the form of a list and no value.
  virtual void value(std::string text) = 0;
  // An object that is told from others by its address, and kept while the signature is.
  virtual void object(const void* address, std::shared_ptr<const void> keep) = 0;
  // Where the visitor is: a member or an element of what it was in before.
  virtual void enter(const char* /*member*/, std::size_t /*index*/) {}
  virtual void leave() {}
  // Notes that values of several replicas follow.
  virtual void replicas() {}
};

std::string function_number(double value);

template <typename T>
void visit(FunctionVisitor& visitor, T& value);

template <typename T>
void visit_member(FunctionVisitor& visitor, const char* member, std::size_t index, T& value) {
  visitor.enter(member, index);
  visit(visitor, value);
  visitor.leave();
}

template <typename List>
void visit_list(FunctionVisitor& visitor, List& list) {
  visitor.value("[" + std::to_string(list.size()));
  std::size_t index = 0;
  for (auto& element : list) visit_member(visitor, nullptr, index++, element);
}

template <typename T>
inline constexpr bool kNoArgument = false;

template <typename T>
void visit_value(FunctionVisitor& visitor, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    visitor.value(value ? "true" : "false");
  } else if constexpr (std::is_enum_v<T>) {
    visitor.value(std::to_string(static_cast<int64_t>(value)));
  } else if constexpr (std::is_integral_v<T>) {
    visitor.value(std::to_string(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    visitor.value(function_number(static_cast<double>(value)));
  } else {
    visitor.value('"' + std::string(value) + '"');
  }
}

template <typename T>
void visit_tuple(FunctionVisitor& visitor, T& tuple) {
  std::size_t index = 0;
  std::apply([&](auto&... each) { (visit_member(visitor, nullptr, index++, each), ...); }, tuple);
}

template <typename T>
void visit_replicas(FunctionVisitor& visitor, T& values) {
  visitor.replicas();
  visitor.value("[" + std::to_string(values.size()) + " replicas");
  if constexpr (requires { values.global_size(), values.some_empty(); }) {
    visitor.value("[" + std::to_string(values.global_size()) + (values.some_empty() ? " examples, some empty" : ""));
  }
  for (std::size_t i = 0; i < values.size(); ++i) visit_member(visitor, nullptr, i, values[i]);
}

inline void visit_example(FunctionVisitor& visitor, Example& example) {
  visit_member(visitor, "x", 0, example.x);
  visit_member(visitor, "y", 0, example.y);
  visit_member(visitor, "weight", 0, example.weight);
  visit_member(visitor, "mask", 0, example.mask);
  visit_member(visitor, "more", 0, example.more);
  visit_member(visitor, "inputs", 0, example.inputs);
  visit_member(visitor, "targets", 0, example.targets);
  visit_member(visitor, "weights", 0, example.weights);
  visit_member(visitor, "masks", 0, example.masks);
}

template <typename T>
void visit(FunctionVisitor& visitor, T& value) {
  using Plain = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Plain, torch::Tensor>) {
    visitor.tensor(value);
  } else if constexpr (std::is_same_v<Plain, Example>) {
    visit_example(visitor, value);
  } else if constexpr (std::is_same_v<Plain, Variable>) {
    visitor.object(&value.options(), std::make_shared<Variable>(value));
  } else if constexpr (std::is_same_v<Plain, Replica> || std::is_same_v<Plain, std::monostate>) {
    // No part of the signature.
  } else if constexpr (std::is_arithmetic_v<Plain> || std::is_enum_v<Plain> ||
                       std::is_convertible_v<const Plain&, std::string_view>) {
    visit_value(visitor, value);
  } else if constexpr (requires { value.has_value(), *value; }) {  // an optional
    visitor.value(value ? "[some" : "[none");
    if (value) visit(visitor, *value);
  } else if constexpr (requires { value.get(), value.use_count(); }) {  // a shared_ptr
    visitor.object(value.get(), value);
  } else if constexpr (kIsPerReplica<Plain>) {
    visit_replicas(visitor, value);
  } else if constexpr (requires { value.ptr().get(); }) {  // a module holder
    visitor.object(value.ptr().get(), value.ptr());
  } else if constexpr (requires { std::string_view(value.first), value.second; }) {  // a tensor or list with a name
    visitor.value("[" + std::string(value.first));
    visit_member(visitor, "", 0, value.second);
  } else if constexpr (requires { std::tuple_size<Plain>::value; }) {
    visit_tuple(visitor, value);
  } else if constexpr (requires { value.begin(), value.end(), value.size(); }) {
    visit_list(visitor, value);
  } else {
    static_assert(kNoArgument<Plain>,
                  "A function takes and returns tensors, Examples, numbers, enumerators, texts, shared_ptrs, module "
                  "holders, Variables, per-replica values, and lists, tuples and optionals of these; capture anything "
                  "else");
  }
}

// What a call of a function is for the part that is no template.
class FunctionCall {
 public:
  virtual ~FunctionCall() = default;
  // Returns the C++ types of the arguments.
  virtual const char* types() const = 0;
  virtual void visit_arguments(FunctionVisitor& visitor) = 0;
  // Calls the function. The result, if it has one, is visited afterwards.
  virtual void run() = 0;
  virtual void visit_result(FunctionVisitor& visitor) = 0;
  // Returns the result, and puts back one that was returned earlier.
  virtual std::any result() const = 0;
  virtual void set_result(const std::any& result) = 0;
};

class FunctionState;
// key: what tells this function's code from other code.
std::shared_ptr<FunctionState> make_function_state(FunctionOptions options, const std::string& key);
void call_function(FunctionState& state, FunctionCall& call);
ConcreteFunction concrete_function(FunctionState& state, FunctionCall& call);
int64_t tracing_count(const FunctionState& state);
// Lets all replicas run their programs as one launch, also where nothing is summed over them: all of them call the
// function in each run, with shares of the same sizes. Its retracing is counted apart from that of others of its code.
void set_joint(FunctionState& state);
std::vector<std::string> signatures(const FunctionState& state);

// The type in which an argument is held: a specification stands for a tensor.
template <typename T>
using Held =
    std::conditional_t<std::is_same_v<std::decay_t<T>, Replica>, Replica&,
                       std::conditional_t<std::is_same_v<std::decay_t<T>, TensorSpec>, torch::Tensor, std::decay_t<T>>>;

template <typename Fn, typename... Args>
concept CallableWith = std::is_invocable_v < Fn&,
        Held<Args>
&... > ;

template <typename T>
decltype(auto) held(T&& given) {
  if constexpr (std::is_same_v<std::decay_t<T>, TensorSpec>) {
    return torch::Tensor();
  } else {
    return std::forward<T>(given);
  }
}

template <typename T>
std::optional<TensorSpec> spec_of(const T& given) {
  if constexpr (std::is_same_v<T, TensorSpec>) return given;
  return std::nullopt;
}

template <typename Fn, typename... Args>
class TypedCall final : public FunctionCall {
  using Result = std::invoke_result_t<Fn&, Held<Args>&...>;
  using Slot = std::conditional_t<std::is_void_v<Result>, std::monostate, std::decay_t<Result>>;

 public:
  template <typename... Given>
  explicit TypedCall(Fn& fn, Given&&... given)
      : fn_(fn), specs_{spec_of(given)...}, arguments_(held(std::forward<Given>(given))...) {}

  const char* types() const override { return typeid(std::tuple<std::decay_t<Held<Args>>*...>).name(); }
  void visit_arguments(FunctionVisitor& visitor) override {
    std::size_t index = 0;
    const auto visit_one = [&](auto& argument) {
      visitor.enter("argument", index);
      if (specs_[index]) {
        if constexpr (std::is_same_v<decltype(argument), torch::Tensor&>) visitor.spec(*specs_[index], argument);
      } else {
        visit(visitor, argument);
      }
      visitor.leave();
      ++index;
    };
    std::apply([&](auto&... each) { (visit_one(each), ...); }, arguments_);
  }
  void run() override {
    if constexpr (std::is_void_v<Result>) {
      std::apply(fn_, arguments_);
      result_.emplace();
    } else {
      result_.emplace(std::apply(fn_, arguments_));
    }
  }
  void visit_result(FunctionVisitor& visitor) override { visit(visitor, *result_); }
  std::any result() const override { return result_; }
  void set_result(const std::any& result) override { result_ = std::any_cast<const std::optional<Slot>&>(result); }

  Result take() {
    if constexpr (!std::is_void_v<Result>) return std::move(*result_);
  }

 private:
  Fn& fn_;
  std::array<std::optional<TensorSpec>, sizeof...(Args)> specs_;
  std::tuple<Held<Args>...> arguments_;
  std::optional<Slot> result_;
};

// Returns what tells the code of a function from other code: its type, and where one type has many functions, more.
template <typename Fn>
std::string function_key(const Fn& fn) {
  if constexpr (std::is_pointer_v<Fn>) {
    return typeid(Fn).name() + std::to_string(reinterpret_cast<std::uintptr_t>(fn));
  } else if constexpr (requires { fn.target_type().name(); }) {
    return fn.target_type().name();
  } else {
    return typeid(Fn).name();
  }
}

}  // namespace detail

// A function that is recorded once a signature; function() makes it. A handle: copies are the same function. It is
// called as the function itself, with arguments by value: tensors and Examples, numbers, enumerators, texts,
// shared_ptrs and Variables, and lists, tuples and optionals of these. A Replica& is passed on. Per-replica values
// (PerReplica<T>, GlobalBatch) are for functions that call Strategy::run(), which run as they are at every call.
// Thread-safe if the function is; on one device that records, one thread at a time.
template <typename Fn>
class Function {
 public:
  // Makes a function of something that can be called; function() is shorter.
  explicit Function(Fn fn, FunctionOptions options = {})
      : fn_(std::make_shared<Fn>(std::move(fn))),
        state_(detail::make_function_state(std::move(options), detail::function_key(*fn_))) {}

  // Calls the function, or runs what was recorded of it. InvalidArgument: the tensors are not what the input_signature
  // says. FailedPrecondition: the function does what cannot be recorded or captured, such as reading a value; what it
  // throws itself comes out as it is.
  template <typename... Args>
  requires detail::CallableWith<Fn, Args...>
  auto operator()(Args&&... args) const {
    detail::TypedCall<Fn, Args...> call(*fn_, std::forward<Args>(args)...);
    detail::call_function(*state_, call);
    return call.take();
  }

  // Returns the signature of these arguments with its program, and records it if it is new; nothing is run. A
  // TensorSpec may stand for a tensor, on the current device. Tensors that the function would leave behind (gradients)
  // are zero. FailedPrecondition: a size is not known, and the device records.
  template <typename... Args>
  requires detail::CallableWith<Fn, Args...>
  auto get_concrete_function(Args&&... args) const -> ConcreteFunction {
    detail::TypedCall<Fn, Args...> call(*fn_, std::forward<Args>(args)...);
    return detail::concrete_function(*state_, call);
  }

  // Returns how many signatures there are.
  int64_t experimental_get_tracing_count() const { return detail::tracing_count(*state_); }
  // Returns the signatures, in the order in which they came.
  std::vector<std::string> signatures() const { return detail::signatures(*state_); }

 private:
  friend class Access;
  std::shared_ptr<Fn> fn_;
  std::shared_ptr<detail::FunctionState> state_;
};

// Makes a function that is recorded once a signature (tf.function). InvalidArgument: a TensorSpec has a size below
// kAnySize.
template <typename Fn>
Function<std::decay_t<Fn>> function(Fn&& fn, FunctionOptions options = {}) {
  return Function<std::decay_t<Fn>>(std::forward<Fn>(fn), std::move(options));
}

}  // namespace cohort
