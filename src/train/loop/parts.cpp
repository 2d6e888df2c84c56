#include "train/loop/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/number_in.h"
#include "data/state.h"
#include "device/host_memory.h"
#include "device/host_random.h"
#include "step/optimizer_state.h"
#include "step/step.h"
#include "strategy/absent.h"
#include "strategy/holders.h"
#include "strategy/module_pieces.h"
#include "strategy/module_tensors.h"
#include "strategy/parameter_layout.h"
#include "train/loop/worker_checkpoints.h"

namespace cohort {

namespace {

// Takes the rate out of an optimizer's state and returns it as a text, which is empty where none was set.
std::string take_rate(NamedTensors& state) {
  const auto found =
      std::find_if(state.begin(), state.end(), [](const auto& item) { return item.first == kLearningRateEntry; });
  if (found == state.end()) return "";
  std::string rate = fmt::format("{:.17g}", found->second.item<double>());
  state.erase(found);
  return rate;
}

// Returns the buffers of each replica, such as batch-norm statistics.
std::vector<torch::Tensor> buffers_of(const OwnParts& parts) {
  std::vector<torch::Tensor> all;
  for (const MirroredModule& module : parts.modules) {
    for (const auto& copy : module.copies()) {
      for (const torch::Tensor& buffer : copy->buffers()) all.push_back(buffer);
    }
  }
  return all;
}

}  // namespace

const NamedTensors& tensors_of(const CheckpointData& data, const std::string& name, const std::string& who) {
  const auto found = data.tensors.find(name);
  if (found == data.tensors.end()) fail<NotFound>(who, ": the checkpoint has no \"", name, "\"");
  return found->second;
}

namespace {

// Puts values in the place of tensors that have one of their names.
void replace(NamedTensors& tensors, const NamedTensors& values, const torch::nn::Module& module) {
  const std::map<std::string, torch::Tensor> given(values.begin(), values.end());
  std::map<std::string, std::vector<std::string>> names;
  for (const auto& list : {distinct_parameters, distinct_buffers}) {
    for (const ModuleTensor& each : list(module)) names[each.name] = each.aliases;
  }
  for (auto& [name, tensor] : tensors) {
    std::vector<std::string> all = names[name];
    all.push_back(name);
    for (const std::string& each : all) {
      const auto found = given.find(each);
      if (found != given.end()) tensor = found->second.to(tensor.options(), /*non_blocking=*/false, /*copy=*/true);
    }
  }
}

void load_named(const MirroredModule& module, const NamedTensors& given, const ChiefLoad& how) {
  if (how.source.empty()) return module.load_state(given, how.strict);
  blame(how.source, [&] { module.load_state(given, how.strict); });
}

}  // namespace

void load_from_chief(const MirroredModule& module, const ReadTensors& read, const ChiefLoad& how) {
  const StrategyCore& core = *Access::core(module);
  if (!Access::layout(module)->crosses_processes() && !has_stages(core)) {
    core.on_chief(how.what, [&] { load_named(module, read(), how); });
    module.copy_from_chief();
    return;
  }
  // The chief has parts, or stages, of its own alone, so each worker takes its own of the wholes.
  NamedTensors all = module.state();
  for (auto& [name, tensor] : all) tensor = tensor.detach().clone();
  core.on_chief(how.what, [&] {
    const NamedTensors given = read();
    load_named(module, given, how);
    replace(all, given, *module.copies().front());
  });
  std::vector<torch::Tensor> values;
  for (const auto& [name, tensor] : all) values.push_back(tensor);
  core.broadcast_from_chief(values);
  module.load_state(all);
}

namespace {

// Makes the optimizer's state what was saved, of which it has been loaded. Workers that share the slots have no other
// way to each other's than to be given all of them. What an older checkpoint lacks is as in an optimizer that is new.
void fill_from(const NamedTensors& saved, const MirroredOptimizer& optimizer, NamedTensors& state) {
  const std::map<std::string, torch::Tensor> given(saved.begin(), saved.end());
  for (auto& [name, tensor] : state) {
    const auto found = given.find(name);
    if (found != given.end()) {
      tensor = torch::empty_like(tensor).copy_(found->second);
    } else {
      tensor = torch::full_like(tensor, name == kLossScaleEntry ? optimizer.loss_scale() : 0.0);
    }
  }
  const auto has_rate = [](const auto& item) { return item.first == kLearningRateEntry; };
  state.erase(std::remove_if(state.begin(), state.end(), has_rate), state.end());
  if (const auto rate = given.find(kLearningRateEntry); rate != given.end()) state.push_back(*rate);
}

}  // namespace

void load_from_chief(const StrategyCore& core, const MirroredOptimizer& optimizer, const ReadTensors& read) {
  NamedTensors slots = optimizer.state();  // what all workers have, as the chief will send it
  core.on_chief("resume", [&] {
    const NamedTensors saved = read();
    optimizer.load_state(saved);
    fill_from(saved, optimizer, slots);
  });
  // Only the chief knows yet whether a rate was set, so the rate travels apart from the tensors that all workers have.
  const std::string rate = core.text_from_chief(take_rate(slots));
  std::vector<torch::Tensor> values;
  for (const auto& [name, tensor] : slots) values.push_back(tensor);
  core.broadcast_from_chief(values);
  if (!rate.empty())
    slots.emplace_back(kLearningRateEntry,
                       torch::tensor(number_in<double>(rate, "[train] the chief's learning rate"), torch::kDouble));
  if (core.worker_rank() > 0) optimizer.load_state(slots);
}

void load_group(const MirroredModule& module, const CheckpointData& data, const std::string& name,
                const std::string& who) {
  if (data.shards == nullptr) return load_from_chief(module, [&] { return tensors_of(data, name, who); });
  on_every_worker(*Access::core(module), "resume", [&] { load_pieces(module, *data.shards->reader->group(name)); });
}

void load_group(const StrategyCore& core, const MirroredOptimizer& optimizer, const CheckpointData& data,
                const std::string& name, const std::string& who) {
  if (data.shards == nullptr) return load_from_chief(core, optimizer, [&] { return tensors_of(data, name, who); });
  on_every_worker(core, "resume",
                  [&] { Access::step(optimizer)->state().load_pieces(*data.shards->reader->group(name)); });
}

// Kinds of devices have random numbers of their own: a stream of another kind cannot be gone on with.
void go_on(at::Generator generator, const torch::Tensor& state) {
  const torch::Tensor now = generator.get_state();
  if (now.scalar_type() == state.scalar_type() && now.sizes() == state.sizes()) {
    generator.set_state(state);
    return;
  }
  warn_once(c10::str("[checkpoint] the replicas were on another kind of device than ", generator.device(),
                     "; their random numbers start anew"));
}

std::string save_own(const StrategyCore& core, const OwnParts& parts, const std::string& input) {
  IteratorState own;
  own.tensors.push_back(host_generator().get_state());
  for (int i = 0; i < core.num_local_replicas(); ++i) own.tensors.push_back(core.replica(i).generator().get_state());
  for (const torch::Tensor& tensor : parts.more) own.tensors.push_back(tensor);
  for (const torch::Tensor& buffer : buffers_of(parts)) {
    own.tensors.push_back(is_absent(buffer) ? torch::empty({0}) : buffer.cpu());
  }
  for (const MirroredOptimizer& optimizer : parts.optimizers) {
    for (const torch::Tensor& sum : optimizer.accumulated()) own.tensors.push_back(sum);
  }
  // A position is bytes, which JSON texts cannot hold.
  own.tensors.push_back(tensor_of_text(input));
  return to_bytes(own);
}

OwnState restore_own(const StrategyCore& core, const OwnParts& parts, const std::string& bytes) {
  OwnState result;
  restore_from(bytes, "the state of this worker", [&](const IteratorState& own) {
    const auto replicas = static_cast<std::size_t>(core.num_local_replicas());
    const std::vector<torch::Tensor> buffers = buffers_of(parts);
    std::size_t wanted = 1 + replicas + parts.more.size() + buffers.size() + 1;
    for (const MirroredOptimizer& optimizer : parts.optimizers) wanted += optimizer.accumulated().size();
    if (own.tensors.size() != wanted) {
      fail<InvalidArgument>(
          parts.who, ": the state of this worker has ", own.tensors.size(), " parts, wanted ", wanted,
          "; were the metrics, the variables, gradient_accumulation_steps and gradient_compression the same? A backup "
          "of ",
          "an LSTM whose bias_hh_l0 learned, an earlier version's, has other parts: load_weights() reads its weights");
    }
    auto next = own.tensors.begin();
    const auto take = [&](std::size_t count) {
      const auto first = next;
      next += static_cast<std::ptrdiff_t>(count);
      return std::vector<torch::Tensor>(first, next);
    };
    at::Generator standard = host_generator();
    standard.set_state(*next++);
    for (std::size_t i = 0; i < replicas; ++i) go_on(core.replica(static_cast<int>(i)).generator(), *next++);
    result.more = take(parts.more.size());
    const torch::NoGradGuard no_grad;
    for (const torch::Tensor& buffer : buffers) {
      const torch::Tensor& saved = *next++;
      if (!is_absent(buffer) && saved.sizes() == buffer.sizes()) buffer.copy_(saved);  // others are another stage's
    }
    for (const MirroredOptimizer& optimizer : parts.optimizers) {
      optimizer.load_accumulated(take(optimizer.accumulated().size()));
    }
    result.input.assign(host_text(*next));
  });
  return result;
}

CheckpointShards shards_of(const std::map<std::string, MirroredModule>& modules,
                           const std::map<std::string, MirroredOptimizer>& optimizers) {
  CheckpointShards shards;
  for (const auto& [name, module] : modules) shards.pieces[name] = pieces_of(module);
  for (const auto& [name, optimizer] : optimizers) shards.pieces[name] = Access::step(optimizer)->state().pieces();
  return shards;
}

std::string mesh_of(const StrategyCore& core) {
  return core.divides_models() ? core.topology().to_string() : "";
}

std::string own_name(int rank) {
  return "worker-" + std::to_string(rank);
}

std::string own_from_chief(const StrategyCore& core, const CheckpointData& data) {
  std::string own;
  if (data.shards != nullptr) {
    on_every_worker(core, "resume", [&] { own = data.shards->reader->bytes(own_name(core.worker_rank())); });
    return own;
  }
  for (int rank = 0; rank < core.num_workers(); ++rank) {
    const auto found = data.bytes.find(own_name(rank));
    const std::string bytes = core.text_from_chief(found == data.bytes.end() ? "" : found->second);
    if (rank == core.worker_rank()) own = bytes;
  }
  return own;
}

std::map<std::string, std::string> gather_own(const StrategyCore& core, const std::string& bytes) {
  const std::vector<std::string> workers = core.gather_texts(bytes);
  std::map<std::string, std::string> all;
  for (int rank = 0; rank < core.num_workers() && core.worker_rank() == 0; ++rank) {
    all[own_name(rank)] = workers[static_cast<std::size_t>(rank)];
  }
  return all;
}

}  // namespace cohort
