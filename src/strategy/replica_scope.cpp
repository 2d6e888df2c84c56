#include "strategy/replica_scope.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "strategy/context.h"

namespace cohort {

void ReplicaScope::note_written(const torch::Tensor& tensor) {
  if (tensor.has_storage() && !lacks(tensor)) written_.push_back(tensor.storage());
}

bool ReplicaScope::lacks(const torch::Tensor& tensor) const {
  return lacks_any() && tensor.has_storage() &&
         std::any_of(written_.begin(), written_.end(), [&](const c10::Storage& each) {
           return each.unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl();
         });
}

void require_whole_share(std::string_view what) {
  const ReplicaScope* const call = thread_context().replica_scope;
  if (call == nullptr || call->examples() < 0) return;
  fail<Unimplemented>("[pipeline] ", what,
                      " needs the replica's whole share, of which a pipeline gives a function one ",
                      "microbatch at a time");
}

void require_whole_model(std::string_view what) {
  if (thread_context().replica_scope == nullptr) return;
  fail<Unimplemented>("[pipeline] ", what,
                      " needs the operations of the whole model, of which each stage has its own; ",
                      "minimize() is for pipelines");
}

void at_end_of_step(const Replica& replica, std::function<void(const Replica&)> act) {
  ReplicaScope* const call = thread_context().replica_scope;
  if (call == nullptr) return act(replica);
  call->after_step(std::move(act));
}

}  // namespace cohort
