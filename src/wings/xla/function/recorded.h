#pragma once

#include <memory>

#include "wings/function/recorded.h"

namespace cohort {

// Makes what a Function keeps on devices of XLA. The options outlive it.
std::unique_ptr<RecordedFunction> make_function_on_xla(const FunctionOptions& options);

}  // namespace cohort
