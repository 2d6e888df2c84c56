#include "strategy/parameter_layout.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "strategy/worker_group.h"

namespace cohort {

const ParameterCut* ParameterLayout::find(const std::string& parameter) const {
  const auto found = cuts_.find(parameter);
  return found == cuts_.end() ? nullptr : &found->second;
}

std::vector<int64_t> ParameterLayout::whole_sizes(const std::string& parameter, torch::IntArrayRef part) const {
  std::vector<int64_t> sizes = part.vec();
  if (const ParameterCut* cut = find(parameter)) sizes[static_cast<std::size_t>(cut->dim)] *= cut->parts;
  return sizes;
}

torch::Tensor ParameterLayout::part(const std::string& parameter, const torch::Tensor& whole, int local_id) const {
  const ParameterCut* cut = find(parameter);
  if (cut == nullptr) return whole;
  const int replica = core_->replica_id(local_id);
  const std::vector<int> line = core_->topology().line(cut->axis, replica);
  const int64_t size = whole.size(cut->dim) / cut->runs / cut->parts;
  const int64_t begin = (std::find(line.begin(), line.end(), replica) - line.begin()) * size;
  if (cut->runs == 1) return whole.narrow(cut->dim, begin, size);
  return whole.unflatten(cut->dim, {cut->runs, size * cut->parts})
      .narrow(cut->dim + 1, begin, size)
      .flatten(cut->dim, cut->dim + 1);
}

// Puts the parts of each run, which came one after the other, next to each other.
torch::Tensor ParameterLayout::in_runs(const torch::Tensor& parts, const ParameterCut& cut) {
  if (cut.runs == 1) return parts;
  const int64_t size = parts.size(cut.dim) / cut.runs / cut.parts;
  return parts.unflatten(cut.dim, {cut.parts, cut.runs, size})
      .transpose(cut.dim, cut.dim + 1)
      .flatten(cut.dim, cut.dim + 2)
      .contiguous();
}

// The line of replica 0 if it has replicas of several processes, each of which brings what it has of it; else that of
// the own first replica.
torch::Tensor ParameterLayout::whole(const std::string& parameter,
                                     const std::function<torch::Tensor(int local_id)>& part_of) const {
  const ParameterCut* cut = find(parameter);
  torch::Tensor first = part_of(0);
  if (cut == nullptr) return first;
  std::vector<torch::Tensor> parts = {first.narrow(cut->dim, 0, 0)};
  for (const int replica : core_->topology().line(cut->axis, cut->crosses ? 0 : core_->replica_id(0))) {
    const int local_id = replica - core_->replica_id(0);
    if (local_id < 0 || local_id >= core_->num_local_replicas()) continue;
    parts.push_back(part_of(local_id).to(first.device()));
  }
  const torch::Tensor here = at::cat(parts, cut->dim);
  if (!cut->crosses) return in_runs(here, *cut);
  const auto everywhere = core_->workers().world().all_gather(here.movedim(cut->dim, 0).contiguous());
  return in_runs(at::cat(everywhere).movedim(0, cut->dim).contiguous(), *cut);
}

torch::Tensor ParameterLayout::chiefs_whole(const std::string& parameter,
                                            const std::function<torch::Tensor(int local_id)>& part_of) const {
  torch::Tensor whole = this->whole(parameter, part_of);
  const ParameterCut* cut = find(parameter);
  if (cut == nullptr || !cut->crosses) core_->broadcast_from_chief({&whole, 1});
  return whole;
}

bool ParameterLayout::crosses_processes() const {
  return std::any_of(cuts_.begin(), cuts_.end(), [](const auto& each) { return each.second.crosses; });
}

}  // namespace cohort
