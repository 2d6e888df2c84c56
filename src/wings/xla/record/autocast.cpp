// Autocast's rules for recorded tensors: those that LibTorch has for CUDA. Where it gives the device type XLA a key of
// its own (compat::xla_autocast_key), each operation that has a rule gets one that calls CUDA's, which takes tensors of
// the type XLA, too.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "base/libtorch_compat.h"
#include "wings/xla/record/kernels.h"

namespace cohort::record {

namespace {

constexpr c10::DispatchKey kKey = compat::xla_autocast_key();

void cast_by_rule_of_cuda(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(kKey);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::AutocastCUDA), stack);
}

}  // namespace

void register_autocast(const OpenLibrary& open) {
  if (kKey == c10::DispatchKey::AutocastCUDA) return;
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  if (!dispatcher.hasBackendFallbackForDispatchKey(kKey)) {
    open("_", kKey).fallback(torch::CppFunction::makeFallthrough());
  }
  torch::Library& aten = open("aten", kKey);
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (name.getNamespace() != "aten" || !op || !op->hasKernelForDispatchKey(c10::DispatchKey::AutocastCUDA)) continue;
    aten.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&cast_by_rule_of_cuda>());
  }
}

}  // namespace cohort::record
