#include "strategy/plain_operation.h"

#include "strategy/absent.h"
#include "strategy/context.h"
#include "strategy/replica_scope.h"

namespace cohort {

bool PlainOperation::begin() {
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  if (keys.excluded_ != c10::default_excluded_set) return false;
  if (keys.included_ == c10::default_included_set) return true;
  ReplicaScope* const call = thread_context().replica_scope;
  const bool watched = call != nullptr && keys.included_ == c10::default_included_set.add(kAbsentKey) &&
                       !call->elsewhere() && !call->counts() && !call->lacks_any();
  if (!watched) return false;
  watch_ = call;
  within_.emplace(kAbsentKey);
  return true;
}

void PlainOperation::note(const torch::Tensor& input) const {
  if (watch_ != nullptr && input.defined()) watch_->note_use(input);
}

}  // namespace cohort
