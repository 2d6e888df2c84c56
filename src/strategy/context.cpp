#include "strategy/context.h"

#include <memory>

#include "base/access.h"
#include "base/fail.h"
#include "cohort/strategy.h"
#include "strategy/core.h"
#include "strategy/replica_scope.h"

namespace cohort {

ThreadContext& thread_context() {
  thread_local ThreadContext context;
  return context;
}

Replica* replica_among_others() {
  Replica* replica = thread_context().replica;
  return replica != nullptr && replica->num_replicas_in_sync() > 1 ? replica : nullptr;
}

bool beside_others() {
  const Replica* replica = thread_context().replica;
  return replica != nullptr && Access::core(*replica).launch().has_threads();
}

bool is_elsewhere() {
  const ReplicaScope* const call = thread_context().replica_scope;
  return call != nullptr && call->elsewhere();
}

void meet_replicas(std::string_view what, void* mine, const std::function<void(std::span<void* const>)>& lead) {
  require_whole_share(what);
  const Replica& replica = *thread_context().replica;
  Access::core(replica).launch().meet(replica.local_id(), what, mine, lead);
}

ReplicaContext::ReplicaContext(Replica* replica)
    : outer_(thread_context().replica), outer_merged_(thread_context().merged) {
  thread_context().replica = replica;
  thread_context().merged = replica == nullptr;
}

ReplicaContext::~ReplicaContext() {
  thread_context().replica = outer_;
  thread_context().merged = outer_merged_;
}

StrategyScope::StrategyScope(std::shared_ptr<StrategyCore> core) : core_(std::move(core)) {
  ThreadContext& context = thread_context();
  if (context.replica != nullptr) {
    fail<FailedPrecondition>("[strategy] scope: entered inside a replica; enter it before run()");
  }
  if (!context.scopes.empty() && context.scopes.back() != core_) {
    fail<FailedPrecondition>("[strategy] scope: ", core_->plan().name, " cannot be entered while the scope of ",
                             context.scopes.back()->plan().name,
                             " (another strategy) is active: strategies do not mix");
  }
  context.scopes.push_back(core_);
  core_->launch().enter_device(device_);
}

StrategyScope::~StrategyScope() {
  device_.reset();
  thread_context().scopes.pop_back();
}

Strategy current_strategy() {
  const ThreadContext& context = thread_context();
  if (context.replica != nullptr) return context.replica->strategy();
  if (!context.scopes.empty()) return Access::make<Strategy>(context.scopes.back());
  return DefaultStrategy();
}

bool has_strategy() {
  const ThreadContext& context = thread_context();
  return context.replica != nullptr || context.merged || !context.scopes.empty();
}

bool in_cross_replica_context() {
  const ThreadContext& context = thread_context();
  return context.replica == nullptr && (context.merged || !context.scopes.empty());
}

}  // namespace cohort
