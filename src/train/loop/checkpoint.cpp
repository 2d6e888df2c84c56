// The checkpoint of a loop of one's own has a group of tensors for each module and optimizer, one group for all
// variables, and a piece of bytes for each worker, as that of fit() has (parts.h).
#include "cohort/train/training_checkpoint.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "cohort/preemption.h"
#include "strategy/core.h"
#include "train/loop/parts.h"
#include "train/loop/variables.h"
#include "train/loop/worker_checkpoints.h"

namespace cohort {

namespace {

constexpr const char* kRestore = "[checkpoint] restore";
constexpr int64_t kTold = int64_t{1} << 62;  // the flag of the input that a preempted worker raises

}  // namespace

class Checkpoint::Impl {
 public:
  Impl(const Strategy& strategy, std::filesystem::path directory, CheckpointParts parts, CheckpointOptions options)
      : strategy_(strategy), core_(*Access::core(strategy_)), parts_(std::move(parts)), told_(std::move(options.told)) {
    core_.placement().require_here(
        "[checkpoint] parameter servers keep the variables, and their coordinator saves them");
    require_parts();
    checkpoints_.emplace(core_, std::move(directory), options.manager, options.sharded);
  }

  std::optional<Progress> restore(DistributedIterator* input) {
    const std::optional<SavedCheckpoint> saved = checkpoints_->restore_latest(names_of_parts());
    if (!saved) return std::nullopt;
    const CheckpointData& data = saved->data;
    const auto [step, values] =
        nlohmann::json::parse(core_.text_from_chief(nlohmann::json{saved->step, data.values}.dump()))
            .get<std::pair<int64_t, std::map<std::string, std::string>>>();
    for (const auto& [name, module] : parts_.modules) load_group(module, data, name, kRestore);
    for (const auto& [name, optimizer] : parts_.optimizers) load_group(core_, optimizer, data, name, kRestore);
    load_from_chief(core_, parts_.variables, data, kRestore);
    Progress progress{.step = step, .values = values};
    const std::string shape = std::exchange(progress.values["replicas"], "");
    progress.values.erase("replicas");
    const std::string own = own_from_chief(core_, data);
    if (shape == own_shape()) {
      restore_own_parts(own, input);
    } else {
      require_values(parts_.variables, "[checkpoint] restore", shape, own_shape());
      log().warn("[checkpoint] step {} was saved with {} replicas, now there are {}: random states begin anew{}", step,
                 shape, own_shape(), input == nullptr ? "" : ", and the input stays where it is");
    }
    return progress;
  }

  void save(const Progress& progress, DistributedIterator* input) {
    if (Replica::current() != nullptr) {
      fail<FailedPrecondition>("[checkpoint] save is called across replicas, not inside run()");
    }
    CheckpointData data{.values = progress.values};
    if (!data.values.emplace("replicas", own_shape()).second) {
      fail<InvalidArgument>("[checkpoint] save: \"replicas\" is a value of the checkpoint's own");
    }
    data.tensors[kVariablesGroup] = values_of(parts_.variables);
    const std::string own = save_own(core_, own_parts(), input == nullptr ? "" : input->save());
    if (checkpoints_->sharded()) {
      data.bytes = {{own_name(core_.worker_rank()), own}};
      data.shards = std::make_shared<CheckpointShards>(shards_of(parts_.modules, parts_.optimizers));
    } else {
      for (const auto& [name, module] : parts_.modules) data.tensors[name] = module.state();
      for (const auto& [name, optimizer] : parts_.optimizers) data.tensors[name] = optimizer.state();
      data.bytes = gather_own(core_, own);
    }
    checkpoints_->save(progress.step, data);
  }

  void wait() { checkpoints_->wait(); }

  // SIGTERM is watched for only if somebody asks here; otherwise it ends the program.
  bool preempted(DistributedIterator& input) {
    if (!told_) told_ = [watcher = std::make_shared<PreemptionWatcher>()] { return watcher->preempted(); };
    if (told_()) input.raise(kTold);
    return (input.raised() & kTold) != 0;
  }

 private:
  void require_parts() const {
    std::set<std::string> names = {kVariablesGroup};
    const auto require = [&](const std::string& name, bool ours) {
      if (!names.insert(name).second) fail<InvalidArgument>("[checkpoint] \"", name, "\" is the name of two parts");
      if (!ours) fail<InvalidArgument>("[checkpoint] \"", name, "\" is empty, or made under another strategy");
    };
    for (const auto& [name, module] : parts_.modules)
      require(name, module.defined() && Access::core(module).get() == &core_);
    for (const auto& [name, optimizer] : parts_.optimizers) require(name, optimizer.defined());
    for (const auto& [name, variable] : parts_.variables) {
      if (strategy_.owns(variable)) continue;
      fail<InvalidArgument>("[checkpoint] the variable \"", name, "\" is empty, or made under another strategy");
    }
  }

  std::set<std::string> names_of_parts() const {
    std::set<std::string> names;
    for (const auto& [name, module] : parts_.modules) names.insert(name);
    for (const auto& [name, optimizer] : parts_.optimizers) names.insert(name);
    return names;
  }

  // Returns the number of replicas and workers as a text: "2 on 3 worker(s)", and what they are laid out on where
  // several of them take one share of the batch.
  std::string own_shape() const {
    const std::string mesh = mesh_of(core_);
    return c10::str(core_.num_replicas_in_sync(), " on ", core_.num_workers(), " worker(s)",
                    mesh.empty() ? "" : " (" + mesh + ")");
  }

  OwnParts own_parts() const {
    OwnParts own{.who = "[checkpoint] restore", .more = own_components(variables())};
    for (const auto& [name, module] : parts_.modules) own.modules.push_back(module);
    for (const auto& [name, optimizer] : parts_.optimizers) own.optimizers.push_back(optimizer);
    return own;
  }

  void restore_own_parts(const std::string& bytes, DistributedIterator* input) {
    const OwnState own = restore_own(core_, own_parts(), bytes);
    set_own_components(variables(), own.more);
    if (input == nullptr) return;
    const bool saved = !own.input.empty();
    if (saved) input->restore(own.input);
    if (!saved) log().warn("[checkpoint] restore: the input was not saved, and stays where it is");
  }

  std::vector<Variable> variables() const {
    std::vector<Variable> list;
    for (const auto& [name, variable] : parts_.variables) list.push_back(variable);
    return list;
  }

  Strategy strategy_;
  StrategyCore& core_;
  CheckpointParts parts_;
  std::function<bool()> told_;
  std::optional<WorkerCheckpoints> checkpoints_;
};

Checkpoint::Checkpoint(const Strategy& strategy, std::filesystem::path directory, CheckpointParts parts,
                       CheckpointOptions options)
    : impl_(std::make_unique<Impl>(strategy, std::move(directory), std::move(parts), std::move(options))) {}

Checkpoint::~Checkpoint() = default;

std::optional<Progress> Checkpoint::restore(DistributedIterator* input) {
  return impl_->restore(input);
}

void Checkpoint::save(const Progress& progress, DistributedIterator* input) {
  impl_->save(progress, input);
}

void Checkpoint::wait() {
  impl_->wait();
}

bool Checkpoint::preempted(DistributedIterator& input) {
  return impl_->preempted(input);
}

}  // namespace cohort
