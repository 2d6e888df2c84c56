// A stage that has nothing to do, at the beginning and at the end of a step, gives its thread to the loops of one that
// has. It takes pieces where it waits anyway; whoever asks for them takes back those that nobody has begun, so that no
// loop waits for a stage that comes late or has failed.
#include "wings/pipeline/strategy/pipeline_run.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "base/deadline.h"
#include "base/error_text.h"
#include "base/log.h"
#include "cohort/trace.h"
#include "strategy/core.h"
#include "strategy/worker_group.h"
#include "wings/pipeline/strategy/passage.h"

namespace cohort {

void PipelineRun::wake_all() {
  for (Stage& stage : stages) stage.call();
  for (Passage* passage : passages) passage->wake_all();
}

void PipelineRun::fail_with(std::exception_ptr failure) {
  bool is_first = false;
  {
    const std::lock_guard lock(mutex);
    is_first = !error;
    if (is_first) error = failure;
    wake_all();
  }
  if (line == nullptr || !is_first) return;
  // Messages of others are waited for until the workers hear of it.
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& what) {
    core->workers().fail(error_text(what));
  } catch (...) {
    core->workers().fail("a stage of a pipeline failed");
  }
}

uint64_t PipelineRun::seed_of(std::size_t microbatch) {
  const std::lock_guard lock(mutex);
  const torch::NoGradGuard no_grad;
  if (!seeds.defined()) {
    const auto options = at::TensorOptions(torch::kLong).device(replica.device());
    seeds = at::empty({static_cast<int64_t>(passages.size())}, options).random_(stream).cpu();
  }
  return static_cast<uint64_t>(seeds[static_cast<int64_t>(microbatch)].item<int64_t>());
}

void PipelineRun::divide(const std::vector<int>& helpers, const std::function<void(int)>& loop) {
  std::vector<Piece> pieces(helpers.size());
  {
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < helpers.size(); ++i) {
      Stage& stage = stages[static_cast<std::size_t>(helpers[i])];
      pieces[i].loop = &loop;
      pieces[i].number = static_cast<int>(i) + 1;
      stage.pieces.push_back(&pieces[i]);
      stage.call();
    }
  }
  loop(0);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Piece& piece = pieces[i];
    Stage& helper = stages[static_cast<std::size_t>(helpers[i])];
    std::unique_lock lock(mutex);
    if (piece.state == Piece::State::kAsked) {
      helper.pieces.erase(std::find(helper.pieces.begin(), helper.pieces.end(), &piece));
      lock.unlock();
      loop(piece.number);
      continue;
    }
    // It works on memory that the caller has.
    const auto is_done = [&] { return piece.state.load() == Piece::State::kDone; };
    lock.unlock();
    spin_until(is_done, spins, helper.as_caller);
    lock.lock();
    while (!piece.done.wait_for(lock, std::chrono::minutes(1), is_done)) {
      log().warn("[pipeline] stage {} has not come back for a minute from a loop over memory", helpers[i]);
    }
  }
}

void PipelineRun::help(Stage& own, std::unique_lock<std::mutex>& lock) const {
  Piece& piece = *own.pieces.front();
  own.pieces.pop_front();
  piece.state = Piece::State::kTaken;
  lock.unlock();
  {
    const TraceSpan span("compute", "help");
    (*piece.loop)(piece.number);
  }
  lock.lock();
  piece.state = Piece::State::kDone;
  piece.done.notify_all();
}

void PipelineRun::end_stage(Stage& own) {
  std::unique_lock lock(mutex);
  if (++ended == stages.size()) return wake_all();
  const Deadline deadline(timeout);
  // Where it is not over in time, run() says who has not come back.
  wait(own, own.wake, lock, deadline, /*has_work=*/false, [&] { return error || ended == stages.size(); });
}

}  // namespace cohort
