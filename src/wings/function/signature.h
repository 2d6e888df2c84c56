// Signatures of functions: what the arguments of a call are, as far as what is recorded depends on it. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cohort/function.h"

namespace cohort {

// One argument, or a part of one: a tensor, a value, or an object.
struct ArgumentType {
  bool is_tensor = false;
  // Of a tensor. An undefined one has the dtype Undefined.
  torch::ScalarType dtype = torch::ScalarType::Undefined;
  std::optional<std::vector<int64_t>> shape;  // unset: any shape
  torch::Device device = torch::kCPU;
  bool requires_grad = false;
  // The text of a value, or of an object's address.
  std::string value;

  bool operator==(const ArgumentType&) const = default;
};

struct Signature {
  std::string types;                    // the C++ types of the arguments
  std::vector<ArgumentType> arguments;  // in their order
  bool grad_mode = true;                // whether LibTorch keeps gradients

  bool operator==(const Signature&) const = default;
  // Returns whether all arguments of the other signature may stand where this one's are wanted.
  bool accepts(const Signature& other) const;
  // Returns whether every size of every tensor is known.
  bool is_static() const;
};

// Returns the narrowest signature that accepts both, or nothing if they differ in more than sizes.
std::optional<Signature> relaxed(const Signature& a, const Signature& b);

// Writes a tensor's type as "f32[3, ?] xla:0", and the signature as "f32[3, ?] cpu, 7".
std::string to_string(const ArgumentType& type);
std::string to_string(const Signature& signature);
std::string to_string(const TensorSpec& spec);
// Writes all of a signature: two with the same text are the same.
std::string to_key(const Signature& signature);
// Says how the second signature differs from the first: "argument 0 is f32[3], not f32[2]".
std::string difference(const Signature& before, const Signature& now);

// Returns the type of a tensor that is there.
ArgumentType type_of(const torch::Tensor& tensor);
// Returns the type of a tensor that is described, on a device.
ArgumentType type_of(const TensorSpec& spec, torch::Device device);
// InvalidArgument: a specification makes no sense. `name` is the function's.
void check_specs(const std::vector<TensorSpec>& specs, const std::string& name);
// Holds the arguments to the input_signature and widens their shapes to it. place(i) names argument i for messages.
// InvalidArgument names what came and what was wanted.
void fit(Signature& signature, const std::vector<TensorSpec>& specs,
         const std::function<std::string(std::size_t)>& place, const std::string& name);

}  // namespace cohort
