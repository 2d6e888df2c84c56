#include "wings/parameter_server/step/server_buffers.h"

#include <ATen/Functions.h>
#include <torch/nn/module.h>

#include "strategy/module_tensors.h"

namespace cohort {

ServerBuffers::ServerBuffers(MirroredModule module, RemoteVariables& remote, const std::string& prefix)
    : module_(std::move(module)), remote_(remote) {
  const std::string folder = prefix + "buffers/";
  std::vector<std::vector<ModuleTensor>> buffers;  // [replica]
  for (const auto& copy : module_.copies()) buffers.push_back(distinct_buffers(*copy));
  for (std::size_t i = 0; i < buffers.front().size(); ++i) {
    const auto& [name, tensor, aliases] = buffers.front()[i];
    if (tensor.scalar_type() == torch::kBool) continue;  // a mask: nothing to add to
    const torch::Tensor value = tensor.detach().cpu().contiguous().clone();
    variables_.push_back(remote_.declare({.name = folder + name, .value = value}));
    values_.push_back(value);
    std::vector<torch::Tensor> copies;
    for (const auto& own : buffers) copies.push_back(own[i].tensor);
    copies_.push_back(std::move(copies));
  }
}

torch::Tensor ServerBuffers::current(std::size_t buffer) const {
  const std::vector<torch::Tensor>& copies = copies_[buffer];
  torch::Tensor first = copies[0].detach().cpu();
  if (!first.is_floating_point() || copies.size() == 1) return first;
  torch::Tensor sum = first.clone();
  for (std::size_t i = 1; i < copies.size(); ++i) sum.add_(copies[i].detach().cpu());
  return sum.div_(static_cast<double>(copies.size()));
}

std::vector<RemoteVariables::Change> ServerBuffers::changes() const {
  std::vector<RemoteVariables::Change> list;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const bool floating = values_[i].is_floating_point();
    if (!floating && !remote_.leads_step()) continue;
    const torch::Tensor now = current(i);
    if (at::equal(now, values_[i])) continue;
    torch::Tensor delta = now - values_[i];
    if (floating && remote_.weight() != 1.0) delta.mul_(remote_.weight());
    list.push_back({.variable = variables_[i], .delta = delta.contiguous()});
  }
  return list;
}

void ServerBuffers::spread(int replica) const {
  for (std::size_t i = 0; i < values_.size(); ++i) copies_[i][static_cast<std::size_t>(replica)].copy_(values_[i]);
}

void ServerBuffers::gather() const {
  for (std::size_t i = 0; i < values_.size(); ++i) values_[i].copy_(current(i));
}

}  // namespace cohort
