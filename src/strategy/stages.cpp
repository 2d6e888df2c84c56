#include "cohort/parallel/stages.h"

#include "strategy/context.h"
#include "strategy/replica_scope.h"

namespace cohort {

torch::Tensor next_stage(const torch::Tensor& x) {
  ReplicaScope* const call = thread_context().replica_scope;
  return call == nullptr ? x : call->at_cut({x}).front();
}

std::vector<torch::Tensor> next_stage(const std::vector<torch::Tensor>& values) {
  ReplicaScope* const call = thread_context().replica_scope;
  return call == nullptr ? values : call->at_cut(values);
}

torch::Tensor stage_place(const torch::Tensor& x, std::string_view name) {
  ReplicaScope* const call = thread_context().replica_scope;
  return call == nullptr || !call->begins_at(name) ? x : call->at_cut({x}).front();
}

std::vector<torch::Tensor> stage_place(const std::vector<torch::Tensor>& values, std::string_view name) {
  ReplicaScope* const call = thread_context().replica_scope;
  return call == nullptr || !call->begins_at(name) ? values : call->at_cut(values);
}

}  // namespace cohort
