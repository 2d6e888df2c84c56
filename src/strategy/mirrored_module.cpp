#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <c10/core/DeviceGuard.h>

#include <map>

#include "base/fail.h"
#include "cohort/mirrored.h"
#include "cohort/strategy.h"
#include "strategy/core.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

NamedTensors parameters_of(const torch::nn::Module& module) {
  NamedTensors list;
  for (const auto& item : module.named_parameters()) list.emplace_back(item.key(), item.value());
  return list;
}

NamedTensors buffers_of(const torch::nn::Module& module) {
  NamedTensors list;
  for (const auto& item : module.named_buffers()) list.emplace_back(item.key(), item.value());
  return list;
}

void require_alike(const NamedTensors& first, const NamedTensors& other, std::size_t replica) {
  if (first.size() != other.size()) {
    fail<InvalidArgument>("[strategy] mirror: the copy of replica ", replica, " has ", other.size(),
                          " tensors, replica 0's has ", first.size(),
                          ": the factory must build the same module each time");
  }
  for (std::size_t i = 0; i < first.size(); ++i) {
    const auto& [name, tensor] = first[i];
    if (name == other[i].first && tensor.sizes() == other[i].second.sizes() &&
        tensor.scalar_type() == other[i].second.scalar_type()) {
      continue;
    }
    fail<InvalidArgument>("[strategy] mirror: replica 0 has ", name, " of shape ", tensor.sizes(), ", replica ",
                          replica, " has ", other[i].first, " of shape ", other[i].second.sizes(),
                          ": the factory must build the same module each time");
  }
}

void copy_values(const NamedTensors& from, const NamedTensors& to) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < from.size(); ++i) to[i].second.detach().copy_(from[i].second);
}

// Every worker's first copy gets the chief's values.
void start_from_chief(const StrategyCore& core, const NamedTensors& parameters, const NamedTensors& buffers) {
  std::vector<torch::Tensor> tensors;
  for (const NamedTensors* list : {&parameters, &buffers}) {
    for (const auto& [name, tensor] : *list) tensors.push_back(tensor.detach());
  }
  core.broadcast_from_chief(tensors);
}

// Floating-point buffers become the mean over the workers, others the chief's.
void synchronize_workers(const StrategyCore& core, const NamedTensors& buffers) {
  if (core.workers() == nullptr) return;
  std::vector<torch::Tensor> averaged;
  std::vector<torch::Tensor> copied;
  for (const auto& [name, tensor] : buffers) (tensor.is_floating_point() ? averaged : copied).push_back(tensor);
  if (!averaged.empty()) core.workers()->world().all_reduce(averaged, ReduceOp::kMean);
  core.broadcast_from_chief(copied);
}

// Keeps the default generator where it was: the copies of replicas above 0 are overwritten, so what they draw must not
// be noticed by whoever draws next.
class UndisturbedRandomness {
 public:
  UndisturbedRandomness()
      : generator_(at::globalContext().defaultGenerator(torch::kCPU)), state_(generator_.get_state()) {}
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
    : core_(std::move(core)), copies_(std::move(copies)) {
  const NamedTensors parameters = parameters_of(*copies_.front());
  const NamedTensors buffers = buffers_of(*copies_.front());
  for (std::size_t i = 1; i < copies_.size(); ++i) {
    require_alike(parameters, parameters_of(*copies_[i]), i);
    require_alike(buffers, buffers_of(*copies_[i]), i);
  }
  copy_from_chief();
  for (std::size_t i = 1; i < copies_.size(); ++i) {
    const NamedTensors own_parameters = parameters_of(*copies_[i]);
    if (!core_->central() || !core_->shares_memory()) continue;
    for (std::size_t p = 0; p < parameters.size(); ++p) own_parameters[p].second.set_data(parameters[p].second.data());
  }
}

void MirroredModule::copy_from_chief() const {
  const NamedTensors parameters = parameters_of(*copies_.front());
  const NamedTensors buffers = buffers_of(*copies_.front());
  start_from_chief(*core_, parameters, buffers);
  for (std::size_t i = 1; i < copies_.size(); ++i) {
    copy_values(parameters, parameters_of(*copies_[i]));
    copy_values(buffers, buffers_of(*copies_[i]));
  }
}

void MirroredModule::train(bool on) const {
  for (const auto& copy : copies_) copy->train(on);
}

NamedTensors MirroredModule::mean_buffers() const {
  const torch::NoGradGuard no_grad;
  NamedTensors means = buffers_of(*copies_.front());
  if (core_->num_replicas_in_sync() < 2) return means;
  std::vector<NamedTensors> buffers;
  for (const auto& copy : copies_) buffers.push_back(buffers_of(*copy));
  for (std::size_t i = 0; i < means.size(); ++i) {
    torch::Tensor& mean = means[i].second;
    mean = mean.clone();
    if (!mean.is_floating_point()) continue;
    std::vector<torch::Tensor> values;
    for (const NamedTensors& own : buffers) values.push_back(own[i].second);
    reduce_into(mean, values, ReduceOp::kMean);
  }
  synchronize_workers(*core_, means);
  return means;
}

void MirroredModule::synchronize_buffers() const {
  if (core_->num_replicas_in_sync() < 2) return;
  const NamedTensors means = mean_buffers();
  for (const auto& copy : copies_) copy_values(means, buffers_of(*copy));
}

NamedTensors MirroredModule::state() const {
  NamedTensors list = parameters_of(*copies_.front());
  for (auto& buffer : mean_buffers()) list.push_back(std::move(buffer));
  for (auto& [name, tensor] : list) tensor = tensor.detach();
  return list;
}

void MirroredModule::load_state(const std::vector<std::pair<std::string, torch::Tensor>>& state, bool strict) const {
  const torch::NoGradGuard no_grad;
  std::map<std::string, const torch::Tensor*> given;
  for (const auto& [name, tensor] : state) given.emplace(name, &tensor);
  for (const auto& copy : copies_) {
    NamedTensors own = parameters_of(*copy);
    for (auto& buffer : buffers_of(*copy)) own.push_back(std::move(buffer));
    std::size_t found = 0;
    for (auto& [name, tensor] : own) {
      const auto item = given.find(name);
      if (item == given.end()) {
        if (strict)
          fail<NotFound>("[strategy] load_state: there is no \"", name, "\" among the ", given.size(),
                         " given tensors");
        continue;
      }
      const torch::Tensor& value = *item->second;
      if (value.sizes() != tensor.sizes() || value.scalar_type() != tensor.scalar_type()) {
        fail<InvalidArgument>("[strategy] load_state: \"", name, "\" is ", value.scalar_type(), value.sizes(),
                              ", the module wants ", tensor.scalar_type(), tensor.sizes());
      }
      tensor.detach().copy_(value);
      ++found;
    }
    if (found == given.size()) continue;
    for (const auto& [name, tensor] : own) given.erase(name);
    fail<NotFound>("[strategy] load_state: the module has no \"", given.begin()->first, "\"");
  }
}

MirroredModule Strategy::mirror_modules(const std::function<std::shared_ptr<torch::nn::Module>()>& factory) const {
  require_cross_replica("mirror");
  std::vector<std::shared_ptr<torch::nn::Module>> copies;
  std::optional<UndisturbedRandomness> undisturbed;
  for (int i = 0; i < num_local_replicas(); ++i) {
    if (i == 1) undisturbed.emplace();
    const LogicalDevice& where = core_->central() && core_->shares_memory()
                                     ? core_->plan().parameter_devices.front()
                                     : core_->plan().devices[static_cast<std::size_t>(i)];
    const DeviceScope placement(where);
    const c10::DeviceGuard guard(where.torch_device);
    copies.push_back(factory());
    if (!copies.back()) fail<InvalidArgument>("[strategy] mirror: the factory returned an empty module");
    copies.back()->to(where.torch_device);
  }
  return MirroredModule(core_, std::move(copies));
}

}  // namespace cohort
