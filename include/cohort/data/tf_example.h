// tf.train.Example: what the records of TensorFlow's files usually are, named lists of bytes, floats or integers.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cohort {

// A handle: copies are the same example. Reading is thread-safe.
class TFExample {
 public:
  // The type of the values that a feature has.
  enum class Kind { kNone, kBytes, kFloats, kInt64s };

  TFExample();
  // DataLoss: the bytes are none; `source` names them. Memory grows with the bytes that are there.
  static TFExample parse(std::string_view bytes, const std::string& source = "record");
  // Returns the bytes that parse() reads and TensorFlow writes.
  std::string serialize() const;

  std::vector<std::string> names() const;  // sorted
  // kNone: there is no feature of that name, or an empty one.
  Kind kind(const std::string& name) const;

  // NotFound lists the names that there are; InvalidArgument: the feature is of another kind, or does not have exactly
  // one value where one is wanted. Views live as long as the example.
  std::string_view bytes(const std::string& name) const;
  // Returns all byte strings of a feature.
  std::vector<std::string_view> bytes_list(const std::string& name) const;
  // Returns the one integer of a feature.
  int64_t int64(const std::string& name) const;
  // Returns the one number of a feature.
  float floating(const std::string& name) const;
  torch::Tensor int64_list(const std::string& name) const;  // int64 [values], a copy
  torch::Tensor float_list(const std::string& name) const;  // float32 [values], a copy

  // These replace what the feature had.
  void set_bytes(const std::string& name, std::vector<std::string> values);
  // The same with integers.
  void set_int64s(const std::string& name, const std::vector<int64_t>& values);
  // The same with numbers of single precision.
  void set_floats(const std::string& name, const std::vector<float>& values);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace cohort
