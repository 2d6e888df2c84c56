// PackedParameters: modules that keep several parameters as one, such as the matrices of queries, keys and values.
#pragma once

#include <cstdint>
#include <string>

namespace cohort {

// Base of such modules. Each of the parameters in one is cut by itself, so that a replica has its part of all of them.
class PackedParameters {
 public:
  virtual ~PackedParameters() = default;
  // Returns how many parameters of one size the first dimension of the module's own parameter of that name has.
  virtual int64_t runs_of(const std::string& parameter) const = 0;
};

}  // namespace cohort
