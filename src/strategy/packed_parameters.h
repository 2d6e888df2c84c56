// PackedParameters: modules that keep several parameters as one, such as the matrices of queries, keys and values.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace cohort {

// Base of such modules. Each of the parameters in one is cut by itself, so that a replica has its part of all of them.
struct PackedParameters {
  // How many parameters of one size the first dimension of the module's own parameter has, by its name.
  std::map<std::string, int64_t> runs;
};

}  // namespace cohort
