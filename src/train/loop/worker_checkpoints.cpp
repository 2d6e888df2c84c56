// A worker writes its shards in the background, and so does the chief wait for those of the others. What went wrong is
// agreed upon at the next call of all workers.
#include "train/loop/worker_checkpoints.h"

#include <thread>

#include "base/deadline.h"
#include "base/error_text.h"
#include "base/fail.h"
#include "base/log.h"
#include "checkpoint/folder.h"
#include "checkpoint/reader.h"
#include "cohort/trace.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

// The time between two looks for a folder.
constexpr std::chrono::milliseconds kLookForFolder = std::chrono::milliseconds(100);

// Returns the first worker that says something, and what it is.
std::optional<std::pair<int, std::string>> first_of(const std::vector<std::string>& said) {
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    if (!said[rank].empty()) return std::pair(static_cast<int>(rank), said[rank]);
  }
  return std::nullopt;
}

}  // namespace

void on_every_worker(const StrategyCore& core, const std::string& what, const std::function<void()>& fn) {
  std::exception_ptr error;
  std::string text;
  try {
    fn();
  } catch (const std::exception& thrown) {
    error = std::current_exception();
    text = error_text(thrown);
  }
  const auto failed = first_of(core.gather_texts(text));
  if (error) std::rethrow_exception(error);
  if (!failed) return;
  fail<Unavailable>("[strategy] ", what, " failed on ", core.workers().world().rank_name(failed->first), ": ",
                    failed->second);
}

WorkerCheckpoints::WorkerCheckpoints(const StrategyCore& core, std::filesystem::path directory,
                                     const CheckpointManagerOptions& options, bool sharded)
    : strategy_(core.weak_from_this()),
      directory_(std::move(directory)),
      sharded_(sharded),
      asynchronous_(options.asynchronous),
      timeout_(options.timeout) {
  if (sharded_) {
    core.placement().require_here(
        "[checkpoint] sharded checkpoints are not for parameter servers, whose coordinator saves what they have");
  }
  core.on_chief("the checkpoints", [&] { manager_.emplace(directory_, options); });
  if (sharded_) require_common_folder(options);
}

WorkerCheckpoints::~WorkerCheckpoints() {
  if (!own_.valid()) return;
  if (own_.wait_for(timeout_) != std::future_status::ready) return;
  try {
    own_.get();
  } catch (const std::exception& error) {
    log().error("[checkpoint] the last write failed: {}", error_text(error));
    if (manager_) manager_->give_up_shards();
  }
}

std::shared_ptr<const StrategyCore> WorkerCheckpoints::core() const {
  auto core = strategy_.lock();
  if (!core) fail<FailedPrecondition>("[checkpoint] ", directory_.string(), ": the strategy has ended");
  return core;
}

// A folder with a random name that the chief has just made is on no other file system.
void WorkerCheckpoints::require_common_folder(const CheckpointManagerOptions& options) {
  const auto core = this->core();
  std::string made;
  core->on_chief("the folder of the checkpoints", [&] { made = manager_->drafts().string(); });
  made = core->text_from_chief(made);
  const Deadline deadline(options.lock_timeout);
  std::error_code error;
  while (!std::filesystem::exists(made, error) && !deadline.passed()) std::this_thread::sleep_for(kLookForFolder);
  const auto blind = first_of(core->gather_texts(std::filesystem::exists(made, error) ? "" : "it does not see it"));
  if (!blind) return;
  fail<FailedPrecondition>(
      "[checkpoint] ", core->workers().world().rank_name(blind->first), " does not see ", made,
      ", which the chief has made: sharded checkpoints want a directory on a file system that all ",
      "workers reach under one path; without one leave sharded checkpoints off, so that the chief ",
      "writes and reads for all");
}

void WorkerCheckpoints::save(int64_t step, const CheckpointData& data) {
  const auto core = this->core();
  if (!sharded_) return core->on_chief("a checkpoint", [&] { manager_->save(step, data); });
  const TraceSpan span("checkpoint", "wait for the write before, copy");
  wait();
  const auto leaving = asynchronous_ ? std::make_shared<LeavingShards>(*data.shards) : nullptr;
  std::string draft;
  core->on_chief("a checkpoint", [&] { draft = manager_->begin_shards(step).string(); });
  draft = core->text_from_chief(draft);
  const ShardWriter writer{.rank = core->worker_rank(), .workers = core->num_workers()};
  std::packaged_task<void()> write(
      [draft, writer, leaving, shards = leaving ? nullptr : data.shards, bytes = data.bytes] {
        name_traced_thread("checkpoint writer");
        write_shard(draft, writer, leaving ? leaving->take() : *shards, bytes);
      });
  own_ = write.get_future();
  own_what_ = draft;
  if (manager_) {
    const std::weak_ptr<Membership> members = core->workers().membership();
    manager_->save_shards(step, {.tensors = data.tensors, .values = data.values}, core->num_workers(), [members] {
      const auto group = members.lock();
      return group && group->failure().has_value();
    });
  }
  if (asynchronous_) return std::thread(std::move(write)).detach();
  write();
  wait();
}

void WorkerCheckpoints::wait() {
  const auto core = this->core();
  if (!sharded_) return core->on_chief("the write of a checkpoint", [&] { manager_->wait(); });
  try {
    on_every_worker(*core, "the write of a checkpoint", [&] {
      if (!own_.valid()) return;
      if (own_.wait_for(timeout_) != std::future_status::ready) {
        fail<DeadlineExceeded>("[checkpoint] waited ", to_text(timeout_), " for the write of this worker's shards in ",
                               own_what_);
      }
      own_.get();
    });
  } catch (...) {
    drop_write();
    throw;
  }
  core->on_chief("the write of a checkpoint", [&] { manager_->wait(); });
}

// The chief need not wait for shards that will not come.
void WorkerCheckpoints::drop_write() {
  if (!manager_) return;
  manager_->give_up_shards();
  try {
    manager_->wait();
  } catch (const std::exception& error) {
    log().warn("[checkpoint] {}", error_text(error));
  }
}

void WorkerCheckpoints::finish() {
  wait();
  core()->on_chief("the end of the checkpoints", [&] { manager_->finish(); });
}

void WorkerCheckpoints::clear() {
  wait();
  core()->on_chief("the end of the checkpoints", [&] { manager_->clear(); });
}

std::optional<SavedCheckpoint> WorkerCheckpoints::restore_latest(const std::set<std::string>& by_parts) {
  const auto core = this->core();
  if (sharded_) return restore_shards(by_parts);
  std::optional<SavedCheckpoint> saved;
  core->on_chief("the latest checkpoint", [&] { saved = manager_->restore_latest(); });
  if (!core->any_worker("whether there is a checkpoint", saved.has_value())) return std::nullopt;
  return saved ? std::move(saved) : SavedCheckpoint{.folder = directory_};
}

// Opens a checkpoint on every worker, each of which checks a share of it. Returns what is the matter with it, if
// anything.
std::string WorkerCheckpoints::open_on_all(const std::filesystem::path& folder,
                                           std::shared_ptr<CheckpointReader>& reader) const {
  const auto core = this->core();
  std::string damage;
  on_every_worker(*core, "a checkpoint", [&] {
    try {
      reader = std::make_shared<CheckpointReader>(folder);
      reader->check(core->worker_rank(), core->num_workers());
    } catch (const DataLoss& error) {
      damage = error.what();
    } catch (const NotFound& error) {
      damage = error.what();
    }
  });
  const auto found = first_of(core->gather_texts(damage));
  return found ? found->second : "";
}

std::optional<SavedCheckpoint> WorkerCheckpoints::restore_shards(const std::set<std::string>& by_parts) {
  const auto core = this->core();
  wait();
  std::vector<int64_t> steps;
  core->on_chief("the latest checkpoint", [&] { steps = manager_->steps(); });
  for (;; steps.pop_back()) {
    std::string said;
    if (manager_ && !steps.empty()) said = std::filesystem::absolute(manager_->folder(steps.back())).string();
    said = core->text_from_chief(said);
    if (said.empty()) return std::nullopt;
    if (!manager_) steps = {0};  // one for the loop to take away
    std::shared_ptr<CheckpointReader> reader;
    if (const std::string damage = open_on_all(said, reader); !damage.empty()) {
      if (manager_) log().warn("[checkpoint] {} is damaged and left out: {}", said, damage);
      continue;
    }
    const Manifest& manifest = reader->manifest();
    SavedCheckpoint saved{.step = manifest.step, .folder = said, .environment = manifest.environment};
    core->on_chief("the latest checkpoint", [&] {
      saved.data.values = manifest.values;
      read_groups(
          *reader, [&](const std::string& group) { return !by_parts.contains(group); }, saved.data);
      manager_->note_restored(saved);
    });
    saved.data.shards = std::make_shared<CheckpointShards>(CheckpointShards{.reader = reader});
    return saved;
  }
}

}  // namespace cohort
