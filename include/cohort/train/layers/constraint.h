// Conditions that parameters are made to keep after each update. The wing layers has them; without it there is none.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <variant>
#include <vector>

namespace cohort {

// The axes of a norm count the dimensions of a parameter as Keras has it: the weight of Dense is [inputs, units] there,
// and that of a convolution [places..., inputs, outputs]. So 0 gives each unit of Dense a norm, and {0, 1, 2} each
// filter of Conv2D.

// Norms are at most this.
struct MaxNorm {
  double max_value = 2.0;           // the largest norm, 0 or more
  std::vector<int64_t> axis = {0};  // the dimensions over which a norm is taken
};

// Norms are between two numbers, or come nearer to them.
struct MinMaxNorm {
  double min_value = 0.0;           // the smallest norm, 0 or more
  double max_value = 1.0;           // the largest norm
  double rate = 1.0;                // the part of the way that one update goes, in [0, 1]
  std::vector<int64_t> axis = {0};  // the dimensions over which a norm is taken
};

// No number is negative.
struct NonNeg {};

// Norms are 1.
struct UnitNorm {
  std::vector<int64_t> axis = {0};  // the dimensions over which a norm is taken
};

// A condition; by default there is none.
class Constraint {
 public:
  // A function of the user's: the value that a parameter gets, of the same shape. The parameter is a view in Keras'
  // layout. Every replica calls it with the same values, and has to get the same result.
  using Function = std::function<torch::Tensor(const torch::Tensor& parameter)>;
  // What a constraint is; std::monostate: there is none.
  using Kind = std::variant<std::monostate, MaxNorm, MinMaxNorm, NonNeg, UnitNorm, Function>;

  // Makes a constraint that changes nothing.
  Constraint() = default;
  // Makes larger norms smaller. InvalidArgument: max_value is negative, or axis is empty.
  Constraint(MaxNorm options);  // NOLINT(google-explicit-constructor)
  // Makes norms larger or smaller. InvalidArgument: a number is out of its range, or axis is empty.
  Constraint(MinMaxNorm options);  // NOLINT(google-explicit-constructor)
  // Makes negative numbers 0.
  Constraint(NonNeg options);  // NOLINT(google-explicit-constructor)
  // Makes all norms 1. InvalidArgument: axis is empty.
  Constraint(UnitNorm options);  // NOLINT(google-explicit-constructor)
  // Takes the one of this name, as parse(); implicit, so that {.kernel_constraint = "non_neg"} reads well.
  Constraint(const char* name) : Constraint(parse(name)) {}  // NOLINT(google-explicit-constructor)
  // Takes a function of the user's. InvalidArgument: it is empty.
  explicit Constraint(Function function);

  // Returns the constraint that Keras calls by this name, with its numbers: "max_norm", "MaxNorm", "non_neg", ...
  // NotFound: there is none; it lists them.
  static Constraint parse(std::string_view name);

  // Returns whether there is one.
  explicit operator bool() const { return kind_.index() != 0; }
  // Returns what it is, with its options.
  const Kind& kind() const { return kind_; }
  // Returns the value that a parameter in Keras' layout gets. InvalidArgument: the parameter lacks a dimension of axis.
  torch::Tensor operator()(const torch::Tensor& parameter) const { return apply_(parameter); }

 private:
  Kind kind_;
  Function apply_;
};

}  // namespace cohort
