// The storage of a unit of shared parameters, and the kernel that fills its memory for operations.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/types.h>

#include "wings/sharding/strategy/parameter_shards.h"

namespace cohort {

// The dispatch key of shared parameters and their views, which is in front of all others and which no back end has.
inline constexpr c10::DispatchKey kSharedKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

// Plain memory operations while it lives, which autograd and the kernel do not see.
class Plainly {
  c10::impl::ExcludeDispatchKeyGuard shared_{kSharedKey};
  at::AutoDispatchBelowADInplaceOrView below_;
};

// Makes a storage's pointer another one; the context stays.
void point(c10::StorageImpl& storage, void* data);

// Gives LibTorch the kernel for operations on tensors with the key, once for the process.
void install_shared_kernel();

}  // namespace cohort
