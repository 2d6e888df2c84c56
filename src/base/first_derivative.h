// For autograd's functions whose backward pass does what has no history, such as sending messages.
#pragma once

#include <ATen/core/grad_mode.h>

#include <string_view>

#include "base/fail.h"

namespace cohort {

// To be called by a backward pass. Unimplemented: it is to have gradients itself (create_graph), which would be wrong.
// `who` opens the message, such as "[mesh] "; `what` names the function.
inline void require_first_derivative(std::string_view who, std::string_view what) {
  if (!at::GradMode::is_enabled()) return;
  fail<Unimplemented>(who, "second derivatives (create_graph) are not computed through ", what);
}

}  // namespace cohort
