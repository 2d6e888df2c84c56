// Lowering: one operation of a program on its way into the text. The functions of the families (elementwise.cpp, ...)
// read its arguments here and set its results.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "wings/xla/record/operations.h"
#include "wings/xla/record/program.h"
#include "wings/xla/record/stablehlo/lower.h"
#include "wings/xla/record/stablehlo/text.h"

namespace cohort::record::stablehlo {

class Lowering {
 public:
  using Resolve = std::function<Operand(const Place&)>;

  Lowering(Text& text, const Operation& operation, std::vector<bool> used, const StableHloOptions& options,
           Resolve resolve);

  Text& text() const { return text_; }
  int replicas() const { return options_.num_replicas; }
  int cores() const { return options_.num_cores; }

  // Arguments, by their number in LibTorch's schema. has(): there is one. A number in the place of a tensor is a tensor
  // without dimensions.
  bool has(std::size_t i) const;
  Operand in(std::size_t i) const;
  // Returns the argument with the dtype that the operation computes with, broadcast to the result's sizes.
  Operand operand(std::size_t i) const;
  std::vector<std::optional<Operand>> list(std::size_t i) const;
  // A number as a tensor without dimensions; it is a constant or an input of the program.
  Operand number(std::size_t i, const std::string& element) const;
  // Returns whether the number is a constant of that value.
  bool is_number(std::size_t i, double value) const;
  // Attributes. dims() counts negative ones from the end and returns them in ascending order; an empty list or none is
  // all.
  double real(std::size_t i) const;
  int64_t integer(std::size_t i) const;
  bool flag(std::size_t i) const;
  Dims ints(std::size_t i) const;
  std::string string(std::size_t i) const;
  int64_t dim(std::size_t i, int64_t rank) const;
  Dims dims(std::size_t i, int64_t rank) const;

  // Returns the types of the results, and whether somebody reads them.
  const TensorType& out(std::size_t k = 0) const { return operation_.outputs.at(k); }
  std::string element(std::size_t k = 0) const { return element_of(out(k).dtype); }
  bool wants(std::size_t k) const;
  std::size_t out_count() const { return operation_.outputs.size(); }
  // Returns the elements that are computed with: those of the result (of the operands, for comparisons), in single
  // precision where they are of half precision.
  std::string compute() const;

  // Sets a result, converted to its dtype.
  void set(std::size_t k, const Operand& value);
  const std::vector<Operand>& results() const { return results_; }

  // Says that this form of the operation has no lowering.
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  const c10::IValue& attribute(std::size_t i) const;

  Text& text_;
  const Operation& operation_;
  std::vector<bool> used_;
  const StableHloOptions& options_;
  Resolve resolve_;
  std::vector<Operand> results_;
};

// Returns "f32" for half precision, else the element itself.
std::string widened(const std::string& element);

}  // namespace cohort::record::stablehlo
