#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <random>
#include <thread>
#include <utility>

#include "base/deadline.h"
#include "base/error_text.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/regular_file.h"
#include "checkpoint/environment.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/series.h"
#include "checkpoint/writer_folder.h"
#include "checkpoint/writer_lock.h"
#include "cohort/checkpoint.h"
#include "cohort/trace.h"
#include "device/leaving.h"

namespace cohort {

namespace {

namespace fs = std::filesystem;

// The right of this process to write to a directory, and what makes it one that ends with it.
struct Writing {
  WriterLock lock;
  WriterFolder drafts;

  Writing(const fs::path& directory, std::chrono::milliseconds patience)
      : lock(directory, patience), drafts(directory) {}
};

// Returns a name that no other process has.
std::string random_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

void require_whole(const CheckpointData& data) {
  if (data.shards == nullptr) return;
  fail<FailedPrecondition>("[checkpoint] the data is one worker's shards, which Checkpoint, BackupAndRestore and the ",
                           "Controller write together with those of the others");
}

// Data on its way to the host, as it is when this is made.
class LeavingData {
 public:
  explicit LeavingData(const CheckpointData& data) : bytes_(data.bytes), values_(data.values) {
    std::vector<torch::Tensor> tensors;
    for (const auto& [group, named] : data.tensors) {
      std::vector<std::string>& names = names_[group];
      for (const auto& [name, tensor] : named) {
        names.push_back(name);
        tensors.push_back(tensor);
      }
    }
    tensors_ = leave(tensors);
  }

  // Waits for it and returns it, in memory of its own; once.
  CheckpointData take() {
    CheckpointData data{.tensors = {}, .bytes = std::move(bytes_), .values = std::move(values_)};
    std::vector<torch::Tensor> tensors = tensors_->take();
    auto next = tensors.begin();
    for (auto& [group, names] : names_) {
      NamedTensors& named = data.tensors[group];
      for (std::string& name : names) named.emplace_back(std::move(name), std::move(*next++));
    }
    return data;
  }

 private:
  std::map<std::string, std::vector<std::string>> names_;
  std::unique_ptr<LeavingTensors> tensors_;
  std::map<std::string, std::string> bytes_;
  std::map<std::string, std::string> values_;
};

}  // namespace

class CheckpointManager::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(fs::path directory, CheckpointManagerOptions options)
      : directory_(std::move(directory)), options_(std::move(options)) {
    if (!is_file_name(options_.name)) {
      fail<InvalidArgument>("[checkpoint] the name \"", options_.name, "\" cannot be part of a file's name");
    }
    if (options_.max_to_keep < 0 || options_.keep_every_n_hours < 0.0) {
      fail<InvalidArgument>("[checkpoint] max_to_keep is ", options_.max_to_keep, " and keep_every_n_hours ",
                            options_.keep_every_n_hours, ", wanted 0 or more");
    }
    begin_writing();
    pointer_ = read_pointer(directory_);
    pointer_.run = random_name();
    if (pointer_.last_kept == 0) {
      pointer_.last_kept = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    }
  }

  const fs::path& directory() const { return directory_; }
  fs::path folder(int64_t step) const { return directory_ / name_of(step); }

  fs::path save(int64_t step, const CheckpointData& data) {
    require_whole(data);
    require_step(step);
    const TraceSpan span("checkpoint", "copy, wait for the write before");
    const auto leaving = std::make_shared<LeavingData>(data);
    make_room();
    if (options_.asynchronous) {
      in_background(step, [this, step, leaving] { write(step, leaving->take()); });
    } else {
      write(step, leaving->take());
    }
    return folder(step);
  }

  // Returns the folder of the drafts.
  fs::path drafts() { return fs::absolute(writing_->drafts.draft(kPointerFile).parent_path()); }

  // Makes the draft of a checkpoint, to which all workers write, and returns its place.
  fs::path begin_shards(int64_t step) {
    require_step(step);
    make_room();
    given_up_ = false;
    const fs::path draft = writing_->drafts.draft(name_of(step));
    make_draft(draft);
    return fs::absolute(draft);
  }

  // Publishes the draft in the background when all workers have written to it.
  void save_shards(int64_t step, const CheckpointData& data, ShardsToCome shards) {
    shards.timeout = options_.timeout;
    shards.given_up = [this, lost = std::move(shards.given_up)] { return given_up_.load() || lost(); };
    const auto leaving = std::make_shared<LeavingData>(data);
    in_background(step, [this, step, shards, leaving] { write(step, leaving->take(), &shards); });
  }
  void give_up_shards() { given_up_ = true; }

  void wait() {
    if (!pending_.valid()) return;
    if (pending_.wait_for(options_.timeout) != std::future_status::ready) {
      fail<DeadlineExceeded>("[checkpoint] waited ", to_text(options_.timeout), " for the write of ",
                             folder(pending_step_).string());
    }
    pending_.get();
  }

  std::vector<int64_t> steps() const { return checkpoint_steps(directory_, options_.name); }
  bool finished() const { return pointer_.finished; }

  void clear() {
    if (!writing_) begin_writing();
    for (const int64_t step : steps()) remove(step);
    std::error_code ignored;
    if (fs::exists(directory_ / kPointerFile, ignored)) writing_->drafts.withdraw(kPointerFile);
    if (holds_nothing_else()) {
      writing_.reset();
      fs::remove(directory_, ignored);
    }
    pointer_ = {.last_kept = pointer_.last_kept, .run = pointer_.run};
  }

  void finish() {
    pointer_.finished = true;
    if (!writing_) begin_writing();
    point_to(steps());
  }

  std::optional<SavedCheckpoint> restore_latest() {
    std::vector<int64_t> list = steps();
    for (; !list.empty(); list.pop_back()) {
      try {
        SavedCheckpoint checkpoint = read_checkpoint(folder(list.back()));
        note_restored(checkpoint);
        return checkpoint;
      } catch (const DataLoss& error) {
        log().warn("[checkpoint] {} is damaged and left out: {}", folder(list.back()).string(), error.what());
      } catch (const NotFound& error) {
        log().warn("[checkpoint] {} is no checkpoint and left out: {}", folder(list.back()).string(), error.what());
      }
    }
    return std::nullopt;
  }

  void note_restored(const SavedCheckpoint& checkpoint) {
    restored_ = checkpoint.step;
    const std::string changes = changes_since(checkpoint.environment, this_environment());
    if (changes.empty()) return;
    log().warn(
        "[checkpoint] {} was saved in another environment: {}; what is computed from here on may differ in its last "
        "bits "
        "from what would have been computed there",
        checkpoint.folder.string(), changes);
  }

  // Waits for the write before, and has the right to write and room for the next one.
  void make_room() {
    wait();
    if (!writing_) begin_writing();
    // A killed process may have left so many checkpoints that the disk has no room for the next one.
    if (const auto in_use = std::exchange(restored_, std::nullopt)) remove_excess(in_use);
  }

 private:
  static void require_step(int64_t step) {
    if (step < 0) fail<InvalidArgument>("[checkpoint] save: the step is ", step, ", wanted 0 or more");
  }

  void in_background(int64_t step, std::function<void()> write) {
    std::packaged_task<void()> task([self = shared_from_this(), write = std::move(write)] {
      name_traced_thread("checkpoint writer");
      write();
    });
    pending_ = task.get_future();
    pending_step_ = step;
    std::thread(std::move(task)).detach();
  }

  // Makes the directory and keeps other writers out of it.
  void begin_writing() {
    std::error_code error;
    fs::create_directories(directory_, error);
    if (error) fail<Unavailable>("[checkpoint] ", directory_.string(), ": cannot be made: ", error.message());
    writing_.emplace(directory_, options_.lock_timeout);
  }

  bool holds_nothing_else() const {
    std::error_code error;
    for (fs::directory_iterator at(directory_, error), end; !error && at != end; at.increment(error)) {
      const std::string name = at->path().filename();
      if (name != WriterLock::kFile && !WriterFolder::is_name(name)) return false;
    }
    return !error;
  }

  // With shards of workers they have a draft already.
  void write(int64_t step, const CheckpointData& data, const ShardsToCome* shards = nullptr) {
    const TraceSpan span("checkpoint", "write");
    const fs::path draft = writing_->drafts.draft(name_of(step));
    writing_->drafts.publish([&] {
      if (shards == nullptr) return write_checkpoint(folder(step), draft, step, data);
      publish_shards(folder(step), draft, step, data, *shards);
    });
    pointer_.finished = false;
    point_to(remove_excess());
  }

  std::string name_of(int64_t step) const { return options_.name + "-" + std::to_string(step); }

  // Writes the file "checkpoint".
  void point_to(const std::vector<int64_t>& list) {
    const fs::path draft = writing_->drafts.draft(kPointerFile);
    writing_->drafts.publish([&] { write_pointer(directory_ / kPointerFile, draft, options_.name, list, pointer_); });
  }

  // Deletes the checkpoints in excess and returns the steps of the remaining ones.
  std::vector<int64_t> remove_excess(std::optional<int64_t> in_use = std::nullopt) {
    std::vector<int64_t> list = steps();
    std::vector<int64_t> removable;
    for (const int64_t step : list) {
      if (!pointer_.kept.contains(step)) removable.push_back(step);
    }
    const auto limit = static_cast<std::size_t>(options_.max_to_keep);
    const std::size_t excess = limit > 0 && removable.size() > limit ? removable.size() - limit : 0;
    for (std::size_t i = 0; i < excess; ++i) {
      const int64_t step = removable[i];
      if (step == in_use || keeps(step)) continue;
      std::erase(list, step);
      remove(step);
    }
    return list;
  }

  // Returns whether a checkpoint in excess is kept for good.
  bool keeps(int64_t step) {
    if (options_.keep_every_n_hours <= 0.0) return false;
    try {
      const std::string text = read_regular_file(folder(step) / kManifestFile, "checkpoint").value_or("");
      const int64_t time = parse_manifest(text, folder(step).string()).time;
      if (static_cast<double>(time - pointer_.last_kept) < options_.keep_every_n_hours * 3600.0) return false;
      pointer_.last_kept = time;
      pointer_.kept.insert(step);
      return true;
    } catch (const Error&) {
      return false;  // damaged
    }
  }

  // Deletes a checkpoint. The others stay usable where one cannot be deleted.
  void remove(int64_t step) {
    try {
      writing_->drafts.withdraw(name_of(step));
    } catch (const Unavailable& error) {
      log().warn("{}", error.what());
    }
  }

  fs::path directory_;
  CheckpointManagerOptions options_;
  std::optional<Writing> writing_;  // empty from clear() to the next save()
  CheckpointPointer pointer_;
  std::future<void> pending_;
  int64_t pending_step_ = 0;
  std::atomic<bool> given_up_ = false;  // the shards of the write under way will not all come
  std::optional<int64_t> restored_;     // the step restored since the last save, which is known to be whole
};

void save_checkpoint(const fs::path& folder, int64_t step, const CheckpointData& data) {
  require_whole(data);
  const fs::path parent = folder.has_parent_path() ? folder.parent_path() : fs::path(".");
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) fail<Unavailable>("[checkpoint] ", parent.string(), ": cannot be made: ", error.message());
  write_checkpoint(folder, parent / ("." + folder.filename().string() + ".tmp"), step, LeavingData(data).take());
}

CheckpointManager::CheckpointManager(fs::path directory, const CheckpointManagerOptions& options)
    : impl_(std::make_shared<Impl>(std::move(directory), options)) {}
CheckpointManager::~CheckpointManager() {
  try {
    impl_->wait();
  } catch (const std::exception& error) {
    log().error("[checkpoint] the last write failed: {}", error_text(error));
  }
}

const fs::path& CheckpointManager::directory() const {
  return impl_->directory();
}
fs::path CheckpointManager::folder(int64_t step) const {
  return impl_->folder(step);
}
fs::path CheckpointManager::save(int64_t step, const CheckpointData& data) {
  return impl_->save(step, data);
}
fs::path CheckpointManager::drafts() {
  return impl_->drafts();
}
fs::path CheckpointManager::begin_shards(int64_t step) {
  return impl_->begin_shards(step);
}
void CheckpointManager::save_shards(int64_t step, const CheckpointData& data, int workers, std::function<bool()> lost) {
  impl_->save_shards(step, data, {.workers = workers, .given_up = std::move(lost)});
}
void CheckpointManager::give_up_shards() {
  impl_->give_up_shards();
}
void CheckpointManager::note_restored(const SavedCheckpoint& checkpoint) {
  impl_->note_restored(checkpoint);
}
void CheckpointManager::wait() {
  impl_->wait();
}
void CheckpointManager::finish() {
  impl_->wait();
  impl_->finish();
}
bool CheckpointManager::finished() {
  impl_->wait();
  return impl_->finished();
}
std::vector<int64_t> CheckpointManager::steps() {
  impl_->wait();
  return impl_->steps();
}
std::optional<int64_t> CheckpointManager::latest() {
  const std::vector<int64_t> list = steps();
  return list.empty() ? std::nullopt : std::optional(list.back());
}
void CheckpointManager::clear() {
  impl_->wait();
  impl_->clear();
}
std::optional<SavedCheckpoint> CheckpointManager::restore_latest() {
  impl_->wait();
  return impl_->restore_latest();
}

}  // namespace cohort
