// ThreadContext: the scopes that this thread has entered and the replica that it runs. It is the only ambient state.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace cohort {

class ReplicaScope;
class Replica;
class StrategyCore;

struct ThreadContext {
  std::vector<std::shared_ptr<StrategyCore>> scopes;  // the innermost last; all the same strategy
  Replica* replica = nullptr;                         // not null: replica context
  bool merged = false;                                // inside merge_call's function: cross-replica context
  ReplicaScope* replica_scope = nullptr;              // not null: the replica gets a part of its share at a time
};

ThreadContext& thread_context();

// Returns the replica that this thread runs if there are others in sync with it, else null.
Replica* replica_among_others();

// Returns whether this thread runs a replica beside others of this process.
bool beside_others();

// Returns whether this thread is in a part of a model that another process computes.
bool is_elsewhere();

// Joins the local replicas of the run that this thread's replica is in (Launch::meet). There has to be one.
void meet_replicas(std::string_view what, void* mine, const std::function<void(std::span<void* const>)>& lead);

// Makes a replica this thread's current one while it lives; null stands for the cross-replica part of a merge_call.
class ReplicaContext {
 public:
  explicit ReplicaContext(Replica* replica);
  ReplicaContext(const ReplicaContext&) = delete;
  ReplicaContext& operator=(const ReplicaContext&) = delete;
  ~ReplicaContext();

 private:
  Replica* outer_;
  bool outer_merged_;
};

}  // namespace cohort
