// OwnHook: a hook of the library's at the node where a parameter's gradient is complete, for backward passes that the
// library begins there itself. Pipelines, whose passes do not come to these nodes, refuse the hooks of others.
#pragma once

#include <torch/csrc/autograd/function_hook.h>

namespace cohort {

class OwnHook : public torch::autograd::FunctionPostHook {};

}  // namespace cohort
