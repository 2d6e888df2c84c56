#include <ATen/Functions.h>
#include <ATen/core/Generator.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/fail.h"
#include "cohort/mirrored.h"
#include "cohort/strategy.h"
#include "device/backend.h"
#include "device/host_random.h"
#include "device/identity.h"
#include "strategy/absent.h"
#include "strategy/core.h"
#include "strategy/holders.h"
#include "strategy/module_tensors.h"
#include "strategy/parameter_layout.h"
#include "strategy/shared_parameters.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

NamedTensors parameters_of(const torch::nn::Module& module) {
  NamedTensors list;
  for (const ModuleTensor& each : distinct_parameters(module)) list.emplace_back(each.name, each.tensor);
  return list;
}

NamedTensors buffers_of(const torch::nn::Module& module) {
  NamedTensors list;
  for (const ModuleTensor& each : distinct_buffers(module)) list.emplace_back(each.name, each.tensor);
  return list;
}

void require_same_ties(const ModuleTensor& first, const ModuleTensor& other, std::size_t replica) {
  if (first.aliases == other.aliases) return;
  fail<InvalidArgument>("[strategy] mirror: ", first.name, " has the further names {", c10::Join(", ", first.aliases),
                        "} on replica 0 and {", c10::Join(", ", other.aliases), "} on replica ", replica,
                        ": the factory must build the same module each time");
}

void require_alike(const std::vector<ModuleTensor>& first, const std::vector<ModuleTensor>& other,
                   std::size_t replica) {
  if (first.size() != other.size()) {
    fail<InvalidArgument>("[strategy] mirror: the copy of replica ", replica, " has ", other.size(),
                          " tensors, replica 0's has ", first.size(),
                          ": the factory must build the same module each time");
  }
  for (std::size_t i = 0; i < first.size(); ++i) {
    const auto& [name, tensor, aliases] = first[i];
    if (name == other[i].name && tensor.sizes() == other[i].tensor.sizes() &&
        tensor.scalar_type() == other[i].tensor.scalar_type()) {
      require_same_ties(first[i], other[i], replica);
      continue;
    }
    fail<InvalidArgument>("[strategy] mirror: replica 0 has ", name, " of shape ", tensor.sizes(), ", replica ",
                          replica, " has ", other[i].name, " of shape ", other[i].tensor.sizes(),
                          ": the factory must build the same module each time");
  }
}

// Two replicas that update the very same tensor would each take half of its gradient, or both write to it.
void require_own(const std::vector<ModuleTensor>& first, const std::vector<ModuleTensor>& other, std::size_t before,
                 std::size_t replica) {
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (!first[i].tensor.is_same(other[i].tensor) || !first[i].tensor.requires_grad()) continue;
    fail<InvalidArgument>("[strategy] mirror: the factory gave replicas ", before, " and ", replica,
                          " the same tensor for ", first[i].name, ": it must build a new module each time");
  }
}

// Shared ones have one value as it is.
void copy_values(const NamedTensors& from, const NamedTensors& to) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (SharedParameters::of(to[i].second) != nullptr || is_absent(to[i].second)) continue;
    to[i].second.detach().copy_(from[i].second);
  }
}

// Gives a tensor the value that stands under one of its names and returns how many of them are given. A file may have
// any of a tied tensor's names, or all of them with the same value.
std::size_t load_tensor(const ModuleTensor& own, const std::map<std::string, torch::Tensor>& given, bool strict,
                        const ParameterLayout& layout, int local_id) {
  std::vector<std::string> names = {own.name};
  names.insert(names.end(), own.aliases.begin(), own.aliases.end());
  std::erase_if(names, [&](const std::string& name) { return !given.contains(name); });
  if (names.empty() && strict) {
    fail<NotFound>("[strategy] load_state: there is no \"", own.name, "\" among the ", given.size(), " given tensors");
  }
  for (const std::string& name : names) {
    const torch::Tensor& value = given.at(name);
    const std::vector<int64_t> wanted = layout.whole_sizes(own.name, own.tensor.sizes());
    if (value.sizes() != c10::IntArrayRef(wanted) || value.scalar_type() != own.tensor.scalar_type()) {
      fail<InvalidArgument>("[strategy] load_state: \"", name, "\" is ", value.scalar_type(), value.sizes(),
                            ", the module wants ", own.tensor.scalar_type(), c10::IntArrayRef(wanted));
    }
    const torch::Tensor& first = given.at(names.front());
    if (!value.is_same(first) && !at::allclose(value, first.to(value.device()), 0.0, 0.0, /*equal_nan=*/true)) {
      fail<InvalidArgument>("[strategy] load_state: \"", names.front(), "\" and \"", name,
                            "\" are one tensor of the module, but the values given for them differ");
    }
  }
  if (names.empty()) return 0;
  if (SharedParameters* shards = SharedParameters::of(own.tensor)) {
    const torch::Tensor& value = given.at(names.front());
    if (layout.find(own.name) == nullptr) {
      shards->load(own.tensor, value);
    } else {
      shards->load_part(own.tensor, layout.part(own.name, value, local_id));
    }
  } else if (!is_absent(own.tensor)) {
    own.tensor.detach().copy_(layout.part(own.name, given.at(names.front()), local_id));
  }
  return names.size();
}

// Every worker's first copy gets the chief's values, of parameters that are not cut.
void start_from_chief(const StrategyCore& core, const NamedTensors& parameters, const NamedTensors& buffers,
                      const ParameterLayout& layout) {
  std::vector<torch::Tensor> tensors;
  SharedParameters* shared = nullptr;
  for (const NamedTensors* list : {&parameters, &buffers}) {
    for (const auto& [name, tensor] : *list) {
      SharedParameters* shards = SharedParameters::of(tensor);
      if (shards == nullptr && layout.find(name) == nullptr) tensors.push_back(tensor.detach());
      if (shards != nullptr) shared = shards;  // all have the same
    }
  }
  core.broadcast_from_chief(tensors);
  if (shared != nullptr) shared->spread_from_chief();
}

// A parameter on each copy, by local replica.
std::vector<torch::Tensor> on_copies(const std::vector<std::shared_ptr<torch::nn::Module>>& copies,
                                     const std::string& parameter) {
  std::vector<torch::Tensor> list;
  for (const auto& copy : copies) {
    const NamedTensors own = parameters_of(*copy);
    const auto found = std::find_if(own.begin(), own.end(), [&](const auto& each) { return each.first == parameter; });
    list.push_back(found->second);
  }
  return list;
}

// Returns for each buffer of a module whether it becomes the mean over the replicas; of others the first one counts.
std::vector<bool> averaged_buffers(const torch::nn::Module& module) {
  std::set<const void*> first;
  const auto note = [&](const torch::nn::Module& each) {
    const auto* chooses = dynamic_cast<const FirstReplicaBuffers*>(&each);
    if (chooses == nullptr || !chooses->first_replica_counts()) return;
    for (const torch::Tensor& buffer : each.buffers(/*recurse=*/false)) first.insert(tensor_id(buffer));
  };
  module.apply(note);
  std::vector<bool> averaged;
  for (const ModuleTensor& each : distinct_buffers(module)) {
    averaged.push_back(each.tensor.is_floating_point() && !first.contains(tensor_id(each.tensor)));
  }
  return averaged;
}

// Buffers become the mean over the workers, or the chief's.
void synchronize_workers(const StrategyCore& core, const NamedTensors& buffers, const std::vector<bool>& is_averaged) {
  std::vector<torch::Tensor> averaged;
  std::vector<torch::Tensor> copied;
  for (std::size_t i = 0; i < buffers.size(); ++i) (is_averaged[i] ? averaged : copied).push_back(buffers[i].second);
  if (!averaged.empty()) core.workers().world().all_reduce(averaged, ReduceOp::kMean);
  core.broadcast_from_chief(copied);
}

// Does the same where some workers have a buffer and others do not: the mean is that of those who have it, and others
// count as the first of these has them.
void synchronize_stages(const StrategyCore& core, NamedTensors& buffers, const std::vector<bool>& is_averaged) {
  const NamedTensors first = from_holders(core, buffers, /*of_first=*/true);
  const std::map<std::string, torch::Tensor> values(first.begin(), first.end());
  std::vector<torch::Tensor> sums;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const torch::Tensor& own = buffers[i].second;
    const torch::Tensor one = torch::full({1}, is_absent(own) ? 0.0 : 1.0, torch::kDouble);
    if (is_averaged[i]) sums.insert(sums.end(), {zeros_if_absent(own), one});
  }
  if (!sums.empty()) core.workers().world().all_reduce(sums, ReduceOp::kSum);
  auto next = sums.begin();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    buffers[i].second = values.at(buffers[i].first);
    if (!is_averaged[i]) continue;
    buffers[i].second = *next / (next + 1)->item<double>();
    next += 2;
  }
}

// Keeps the default generator where it was: the copies of replicas above 0 are overwritten, so what they draw must not
// be noticed by whoever draws next.
class UndisturbedRandomness {
 public:
  UndisturbedRandomness() : generator_(host_generator()), state_(generator_.get_state()) {}
  UndisturbedRandomness(const UndisturbedRandomness&) = delete;
  UndisturbedRandomness& operator=(const UndisturbedRandomness&) = delete;
  ~UndisturbedRandomness() { generator_.set_state(state_); }

 private:
  at::Generator generator_;
  at::Tensor state_;
};

}  // namespace

MirroredModule::MirroredModule(std::shared_ptr<StrategyCore> core,
                               std::vector<std::shared_ptr<torch::nn::Module>> copies)
    : core_(std::move(core)), copies_(std::move(copies)), layout_(std::make_shared<ParameterLayout>()) {
  for (std::size_t i = 1; i < copies_.size(); ++i) {
    const std::vector<ModuleTensor> parameters = distinct_parameters(*copies_[i]);
    require_alike(distinct_parameters(*copies_.front()), parameters, i);
    require_alike(distinct_buffers(*copies_.front()), distinct_buffers(*copies_[i]), i);
    for (std::size_t before = 0; before < i; ++before) {
      require_own(distinct_parameters(*copies_[before]), parameters, before, i);
    }
  }
  copy_from_chief();
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    const auto holder = static_cast<std::size_t>(core_->placement().holder(static_cast<int>(i)));
    if (holder == i) continue;
    const NamedTensors held = parameters_of(*copies_[holder]);
    const NamedTensors own = parameters_of(*copies_[i]);
    for (std::size_t p = 0; p < held.size(); ++p) own[p].second.set_data(held[p].second.data());
  }
}

void MirroredModule::copy_from_chief() const {
  const NamedTensors parameters = parameters_of(*copies_.front());
  // A chief that does not have all of them: the values of the first worker that has each count.
  if (has_stages(*core_) && !all_have_all(*core_, parameters)) return load_state(state());
  const NamedTensors buffers = buffers_of(*copies_.front());
  start_from_chief(*core_, parameters, buffers, *layout_);
  for (std::size_t i = 1; i < copies_.size(); ++i) {
    const NamedTensors own = parameters_of(*copies_[i]);
    for (std::size_t p = 0; p < own.size(); ++p) {
      if (layout_->find(own[p].first) == nullptr) copy_values({parameters[p]}, {own[p]});
    }
    copy_values(buffers, buffers_of(*copies_[i]));
  }
  copy_parts_from_chief();
}

// Values that the chief alone has loaded are not in the slices of other workers yet. All workers gather, though.
void MirroredModule::copy_parts_from_chief() const {
  const torch::NoGradGuard no_grad;
  SharedParameters::Wholes wholes;
  for (const auto& [name, how] : layout_->cuts()) {
    const std::vector<torch::Tensor> own = on_copies(copies_, name);
    std::vector<torch::Tensor> parts;
    for (const torch::Tensor& each : own) {
      parts.push_back(SharedParameters::whole(each, wholes));
      const SharedParameters* const shards = SharedParameters::of(each);
      const torch::Tensor loaded = shards == nullptr ? torch::Tensor() : shards->loaded_part(each);
      if (loaded.defined()) parts.back() = loaded;
    }
    const torch::Tensor whole =
        layout_->chiefs_whole(name, [&](int local_id) { return parts[static_cast<std::size_t>(local_id)]; });
    for (std::size_t i = 0; i < own.size(); ++i) {
      const torch::Tensor part = layout_->part(name, whole, static_cast<int>(i));
      SharedParameters* const shards = SharedParameters::of(own[i]);
      shards == nullptr ? static_cast<void>(own[i].detach().copy_(part)) : shards->fill(own[i], part);
    }
  }
}

void MirroredModule::train(bool on) const {
  for (const auto& copy : copies_) copy->train(on);
}

NamedTensors MirroredModule::mean_buffers() const {
  const torch::NoGradGuard no_grad;
  NamedTensors means = buffers_of(*copies_.front());
  const bool staged = has_stages(*core_);
  if (!staged) {
    if (core_->communicator(0).size() == 1) return means;
  }
  const std::vector<bool> averaged = averaged_buffers(*copies_.front());
  std::vector<NamedTensors> buffers;
  for (const auto& copy : copies_) buffers.push_back(buffers_of(*copy));
  for (std::size_t i = 0; i < means.size(); ++i) {
    torch::Tensor& mean = means[i].second;
    if (is_absent(mean)) continue;
    mean = mean.clone();
    if (!averaged[i]) continue;
    std::vector<torch::Tensor> values;
    for (const NamedTensors& own : buffers) values.push_back(own[i].second);
    reduce_into(mean, values, ReduceOp::kMean);
  }
  staged ? synchronize_stages(*core_, means, averaged) : synchronize_workers(*core_, means, averaged);
  return means;
}

void MirroredModule::synchronize_buffers() const {
  const NamedTensors means = mean_buffers();
  for (const auto& copy : copies_) copy_values(means, buffers_of(*copy));
}

NamedTensors MirroredModule::state() const {
  NamedTensors list = parameters_of(*copies_.front());
  SharedParameters::Wholes wholes;
  for (auto& [name, tensor] : list) tensor = SharedParameters::whole(tensor, wholes);
  for (auto& [name, tensor] : list) {
    if (layout_->find(name) == nullptr || is_absent(tensor)) continue;
    const std::vector<torch::Tensor> own = on_copies(copies_, name);
    tensor = layout_->whole(
        name, [&](int local_id) { return SharedParameters::whole(own[static_cast<std::size_t>(local_id)], wholes); });
  }
  if (has_stages(*core_)) {
    const NamedTensors all = from_holders(*core_, list);
    const std::map<std::string, torch::Tensor> values(all.begin(), all.end());
    for (auto& [name, tensor] : list) tensor = values.at(name);
  }
  for (auto& buffer : mean_buffers()) list.emplace_back(std::move(buffer.first), buffer.second.detach());
  return list;
}

void MirroredModule::load_state(const std::vector<std::pair<std::string, torch::Tensor>>& state, bool strict) const {
  const torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> given;
  for (const auto& [name, tensor] : state) given.emplace(name, tensor);
  for (std::size_t r = 0; r < copies_.size(); ++r) {
    const auto& copy = copies_[r];
    std::vector<ModuleTensor> own = distinct_parameters(*copy);
    for (ModuleTensor& buffer : distinct_buffers(*copy)) own.push_back(std::move(buffer));
    std::size_t used = 0;
    for (const ModuleTensor& each : own) used += load_tensor(each, given, strict, *layout_, static_cast<int>(r));
    if (used == given.size()) continue;
    for (const ModuleTensor& each : own) {
      given.erase(each.name);
      for (const std::string& alias : each.aliases) given.erase(alias);
    }
    fail<NotFound>("[strategy] load_state: the module has no \"", given.begin()->first, "\"");
  }
}

MirroredModule Strategy::mirror_modules(const std::function<std::shared_ptr<torch::nn::Module>()>& factory) const {
  require_cross_replica("mirror");
  std::vector<std::shared_ptr<torch::nn::Module>> copies;
  std::optional<UndisturbedRandomness> undisturbed;
  for (int i = 0; i < num_local_replicas(); ++i) {
    if (i == 1) undisturbed.emplace();
    const LogicalDevice& where = core_->placement().module_device(i);
    const DeviceScope placement(where);
    const c10::DeviceGuard guard(where.torch_device);
    copies.push_back(factory());
    if (!copies.back()) fail<InvalidArgument>("[strategy] mirror: the factory returned an empty module");
    require_apart(*copies.back());
    backend_of(where.torch_device).move(*copies.back(), where.torch_device);
  }
  MirroredModule module(core_, std::move(copies));
  if (core_->plan().divide) module.layout_ = core_->plan().divide(core_, module.copies_);
  return module;
}

}  // namespace cohort
