#include "wings/parameter_server/coordinator/coordinator.h"

#include <sstream>

#include "base/atomic_file.h"
#include "base/deadline.h"
#include "base/draw.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/number_in.h"
#include "base/regular_file.h"
#include "rpc/frame.h"

namespace cohort {

namespace {

constexpr const char* kClosure = "next_closure";
constexpr const char* kUser = "user.";
constexpr const char* kIterations = "iterations.";
constexpr const char* kSlots = "slots.";

// Returns the number of the run, which stands in its directory. A coordinator that finds one there goes on with that
// run; without a directory every coordinator begins a run of its own.
uint64_t run_of(const std::filesystem::path& directory) {
  const uint64_t drawn = draw_number() | 1;
  if (directory.empty()) return drawn;
  std::filesystem::create_directories(directory);
  const std::filesystem::path file = directory / "run";
  if (const auto text = read_regular_file(file, "coordinator")) {
    uint64_t run = 0;
    if (std::istringstream(*text) >> run && run != 0) return run;
    fail<DataLoss>("[coordinator] ", file.string(),
                   " is damaged: wanted the number of the run; remove the folder to begin "
                   "another one");
  }
  AtomicFile out(file);
  out.write(std::to_string(drawn) + "\n");
  out.commit();
  return drawn;
}

CheckpointData checkpoint_of(const SavedVariables& saved, const Catalog& catalog, int64_t next_closure,
                             const std::map<std::string, std::string>& values) {
  CheckpointData data;
  NamedTensors& variables = data.tensors["variables"];
  NamedTensors& slots = data.tensors["slots"];
  for (const auto& [name, variable] : saved) {
    variables.emplace_back(name, variable.value);
    for (std::size_t i = 0; i < variable.slots.size(); ++i) {
      slots.emplace_back(c10::str(name, "/slot_", i), variable.slots[i]);
    }
    data.values[kIterations + name] = std::to_string(variable.iterations);
  }
  for (const ServerVariable& variable : catalog.variables()) {
    if (variable.optimizer) data.values[kSlots + variable.name] = slot_names(*variable.optimizer);
  }
  data.values[kClosure] = std::to_string(next_closure);
  for (const auto& [name, value] : values) data.values[kUser + name] = value;
  return data;
}

int64_t saved_number(const CheckpointData& data, const std::string& name) {
  const auto found = data.values.find(name);
  if (found == data.values.end()) fail<DataLoss>("[coordinator] the checkpoint has no value ", name);
  return number_in<int64_t>(found->second, c10::str("[coordinator] the checkpoint's value ", name));
}

SavedVariables saved_in(const CheckpointData& data) {
  SavedVariables saved;
  if (const auto variables = data.tensors.find("variables"); variables != data.tensors.end()) {
    for (const auto& [name, value] : variables->second) {
      saved[name] = {.value = value, .iterations = saved_number(data, kIterations + name)};
      if (const auto names = data.values.find(kSlots + name); names != data.values.end()) {
        saved[name].slot_names = names->second;
      }
    }
  }
  const auto slots = data.tensors.find("slots");
  if (slots == data.tensors.end()) return saved;
  const std::map<std::string, torch::Tensor> by_name(slots->second.begin(), slots->second.end());
  for (auto& [name, variable] : saved) {
    for (std::size_t i = 0;; ++i) {
      const auto slot = by_name.find(c10::str(name, "/slot_", i));
      if (slot == by_name.end()) break;
      variable.slots.push_back(slot->second);
    }
  }
  return saved;
}

KeeperOptions keeper_options(const CoordinatorOptions& options) {
  KeeperOptions keeper = options.keeper;
  keeper.run = run_of(options.directory);
  keeper.directory = options.directory;
  return keeper;
}

}  // namespace

Coordinator::Coordinator(std::shared_ptr<ServerVariables> variables, CoordinatorOptions options)
    : options_(std::move(options)),
      variables_(std::move(variables)),
      client_(variables_->freeze(), options_.servers),
      queue_(options_.queue),
      dispatcher_(queue_, options_.dispatcher) {
  if (!options_.directory.empty()) {
    checkpoints_.emplace(options_.directory, CheckpointManagerOptions{.max_to_keep = 2, .asynchronous = false});
  }
  variables_->connect(client_);
  variables_->on_write([this] { queue_.note_change(); });
  keeper_ = std::make_unique<ServerKeeper>(
      variables_->freeze(), client_, keeper_options(options_),
      KeeperEvents{.view = [this](const parameter_server::View& view) { dispatcher_.set_view(view); },
                   .restored = [this](int64_t from) { return queue_.replay(from); },
                   .done_below = [this] { return queue_.done_below(); },
                   .lost = [this](const std::exception_ptr& error) { queue_.fail(error); }});
  const std::shared_ptr<SavedVariables> source = restore();
  keeper_->set_source(source, queue_.next_id());
  keeper_->start(variables_->learning_rates());
  variables_->on_learning_rates([this](const auto& rates) {
    queue_.join();
    keeper_->set_learning_rates(rates);
  });
  log().info("[coordinator] {} parameter server(s) have the values of closure {}", variables_->freeze()->num_servers(),
             queue_.next_id());
  server_ = std::make_unique<RpcServer>(
      options_.address, options_.rpc,
      [this](const std::string& method, const std::shared_ptr<RpcCall>& call) { dispatcher_.handle(method, call); });
}

Coordinator::~Coordinator() {
  variables_->on_write({});
  variables_->on_learning_rates({});
  const bool failed = std::uncaught_exceptions() > exceptions_;
  if (!failed) {
    dispatcher_.finish();
    keeper_->stop_servers();
  }
  server_.reset();
  keeper_.reset();
}

std::shared_ptr<SavedVariables> Coordinator::restore() {
  const std::optional<SavedCheckpoint> checkpoint =
      checkpoints_ ? checkpoints_->restore_latest() : std::optional<SavedCheckpoint>();
  if (!checkpoint) return variables_->saved();
  auto saved = std::make_shared<SavedVariables>(saved_in(checkpoint->data));
  variables_->load(*saved);
  queue_.begin_at(saved_number(checkpoint->data, kClosure));
  restored_.emplace();
  const std::string prefix = kUser;
  for (const auto& [name, value] : checkpoint->data.values) {
    if (name.starts_with(prefix)) (*restored_)[name.substr(prefix.size())] = value;
  }
  return saved;
}

// Returns all values once all work is done, and the view in which the servers had them. A server that is lost meanwhile
// brings back some work, so it tries again.
Coordinator::Collected Coordinator::collect_all() {
  const Deadline deadline(options_.keeper.return_timeout);
  for (;;) {
    const parameter_server::View view = client_.view();
    queue_.join();
    try {
      SavedVariables saved = collect(client_, *variables_->freeze(), options_.keeper.call_timeout);
      const parameter_server::View now = client_.view();
      if (queue_.done() && now.epoch() == view.epoch() && now.number() == view.number()) {
        return {.saved = std::make_shared<SavedVariables>(std::move(saved)), .view = view};
      }
    } catch (const Unavailable&) {
      if (deadline.passed()) throw;
    } catch (const Cancelled&) {
      if (deadline.passed()) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void Coordinator::pull() {
  const Collected collected = collect_all();
  variables_->load(*collected.saved);
  settle(collected, queue_.next_id());
}

void Coordinator::push() {
  const auto saved = collect_all().saved;  // it includes variables of which no task has a copy
  const std::shared_ptr<SavedVariables> own = variables_->saved();
  for (const auto& [name, variable] : *own) (*saved)[name] = variable;
  variables_->load(*saved);
  const int64_t next = queue_.next_id();
  keeper_->replace(saved, next);
  queue_.note_change();
  queue_.forget_before(next);
}

// Notes that the work until now is saved: it need not be repeated when a server is lost, nor be remembered. Servers
// that were lost since the values were collected have been filled with older ones, and are being given that work again:
// they are in a later view, and are told nothing.
void Coordinator::settle(const Collected& collected, int64_t next_closure) {
  keeper_->set_source(collected.saved, next_closure);
  queue_.forget_before(next_closure);
  keeper_->forget(collected.view, next_closure);
}

void Coordinator::save(const std::map<std::string, std::string>& values) {
  if (!checkpoints_) {
    fail<FailedPrecondition>("[coordinator] save: the strategy has no directory for checkpoints");
  }
  const Collected collected = collect_all();
  const int64_t next = queue_.next_id();
  checkpoints_->save(next, checkpoint_of(*collected.saved, *variables_->freeze(), next, values));
  variables_->load(*collected.saved);
  settle(collected, next);
}

}  // namespace cohort
