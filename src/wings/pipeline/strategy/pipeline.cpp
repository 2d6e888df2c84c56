#include "wings/pipeline/strategy/pipeline.h"

#include <ATen/Functions.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/access.h"
#include "base/cpu_threads.h"
#include "base/fail.h"
#include "base/parallel.h"
#include "cohort/trace.h"
#include "device/backend.h"
#include "strategy/context.h"
#include "strategy/core.h"
#include "strategy/replica_threads.h"
#include "wings/pipeline/strategy/absent_operations.h"
#include "wings/pipeline/strategy/between_processes.h"
#include "wings/pipeline/strategy/idle_stages.h"
#include "wings/pipeline/strategy/passage.h"
#include "wings/pipeline/strategy/passage_threads.h"
#include "wings/pipeline/strategy/stand_in_line.h"

namespace cohort {

namespace {

constexpr std::size_t kNamed = 64;  // microbatches that have a name of their own in a trace

// Returns the name of an action's span, which lives as long as the process.
const char* span_name(const PipelineAction& action) {
  static const auto names = [] {
    std::array<std::vector<std::string>, 3> all;
    for (std::size_t op = 0; op < all.size(); ++op) {
      constexpr std::array<const char*, 3> kOps = {"forward", "backward", "weight"};
      for (std::size_t m = 0; m < kNamed; ++m) all[op].push_back(c10::str(kOps[op], " ", m));
      all[op].emplace_back(kOps[op]);
    }
    return all;
  }();
  const auto& own = names[static_cast<std::size_t>(action.op)];
  return own[std::min(static_cast<std::size_t>(action.microbatch), kNamed)].c_str();
}

// Waits until the other processes have taken all messages.
void wait_for_sends(PipelineRun& run) {
  std::vector<Work<>> sends;
  {
    const std::lock_guard lock(run.sending);
    sends.swap(run.sends);
  }
  try {
    for (const Work<>& sent : sends) sent.wait();
  } catch (...) {
    run.fail_with(std::current_exception());
  }
}

class Pipeline final : public ReplicaRunner {
 public:
  Pipeline(StrategyCore& core, int local_id, PipelineSetup setup)
      : core_(core),
        local_id_(local_id),
        setup_(std::move(setup)),
        stages_here_(setup_.axis.empty() ? setup_.stages : setup_.stages_here),
        spins_(core.num_local_replicas() * stages_here_ <= hardware_cores()),
        stages_(stages_here_, spins_) {
    install_absent_kernel();
  }

  void run(detail::Job& job, Replica& replica) override;

 private:
  std::vector<detail::SharePart> parts_of(const detail::Job& job) const;
  // What is known of a schedule for so many microbatches.
  struct Course {
    PipelineSchedule schedule;
    IdleStages idle;
  };

  const Course& course(int microbatches);
  std::vector<std::shared_ptr<Passage>> prepare(const std::shared_ptr<PipelineRun>& run,
                                                const std::vector<detail::SharePart>& parts);
  std::shared_ptr<PipelineRun> begin(detail::Job& job, Replica& replica, int chunks);
  void make_lines();
  void work(PipelineRun& run, const Course& course, int number) const;
  void act(PipelineRun& run, const Course& course, int stage, std::size_t place) const;
  void finish(PipelineRun& run);
  void place(const PipelineRun& run);

  StrategyCore& core_;
  int local_id_;
  PipelineSetup setup_;
  int stages_here_;
  bool spins_;                                      // every stage has a core
  bool watches_ = true;                             // the next run notes which tensors the stages use
  std::set<const void*> open_;                      // the optimizers for which that is not known yet
  std::map<int, Course> courses_;                   // by microbatches
  std::vector<std::shared_ptr<Passage>> passages_;  // of several microbatches
  std::shared_ptr<Passage> whole_;                  // of a single one
  std::vector<StageLines> lines_;                   // [stage], and behind them those of other processes' stages
  bool broken_ = false;                             // a function never came back
  PassageThreads calls_;
  ReplicaThreads stages_;
};

// Returns the microbatches, of which the first ones are larger by one if they do not divide the share.
std::vector<detail::SharePart> Pipeline::parts_of(const detail::Job& job) const {
  if (job.share_sizes.empty()) return {{}};
  const int64_t rows = job.share_sizes[static_cast<std::size_t>(local_id_)];
  const int64_t count = std::clamp<int64_t>(rows, 1, microbatches_of(setup_.schedule));
  std::vector<detail::SharePart> parts;
  int64_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t size = rows / count + (i < rows % count ? 1 : 0);
    parts.push_back({.number = static_cast<std::size_t>(i), .begin = begin, .end = begin + size});
    begin += size;
  }
  return parts;
}

const Pipeline::Course& Pipeline::course(int microbatches) {
  const auto known = courses_.find(microbatches);
  if (known != courses_.end()) return known->second;
  PipelineSchedule schedule = checked_schedule(setup_, microbatches);
  const IdleStages idle(schedule, setup_.first_stage, stages_here_);
  return courses_.emplace(microbatches, Course{std::move(schedule), idle}).first->second;
}

// A single microbatch draws from the replica's own stream.
std::vector<std::shared_ptr<Passage>> Pipeline::prepare(const std::shared_ptr<PipelineRun>& run,
                                                        const std::vector<detail::SharePart>& parts) {
  Replica& replica = run->replica;
  if (whole_ == nullptr) whole_ = std::make_shared<Passage>(replica.generator());
  std::vector<std::shared_ptr<Passage>> passages = {whole_};
  if (parts.size() > 1) {
    run->stream = replica.generator();
    while (passages_.size() < parts.size()) {
      passages_.push_back(std::make_shared<Passage>(core_.backend(local_id_).make_generator(replica.device())));
    }
    passages.assign(passages_.begin(), passages_.begin() + static_cast<std::ptrdiff_t>(parts.size()));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    passages[i]->prepare(run, parts[i]);
    run->passages.push_back(passages[i].get());
  }
  return passages;
}

void Pipeline::run(detail::Job& job, Replica& replica) {
  if (broken_) {
    fail<FailedPrecondition>("[pipeline] a function of an earlier run() never came back, so this strategy cannot be ",
                             "used any more; make a new one");
  }
  const std::vector<detail::SharePart> parts = parts_of(job);
  const Course& own = course(static_cast<int>(parts.size()));
  const std::shared_ptr<PipelineRun> run = begin(job, replica, own.schedule.num_chunks());
  const bool divides = run->line != nullptr;
  job.begin_parts(replica, parts.size());
  const std::vector<std::shared_ptr<Passage>> passages = prepare(run, parts);
  std::optional<BeforeRun> before;
  if (divides) before.emplace(core_, local_id_);
  Arrivals arrivals(run, own.schedule);
  std::size_t begun = 0;
  try {
    for (; begun < passages.size(); ++begun) calls_.begin(begun, passages[begun]);
  } catch (const Unavailable&) {  // those that have begun hear of it
    run->fail_with(std::current_exception());
  }
  const auto stage = std::make_shared<const ReplicaThreads::Work>([this, run, &own](int number) {
    if (number == 0) return work(*run, own, number);
    name_traced_thread(c10::str("replica ", local_id_, ", stage ", setup_.first_stage + number));
    const at::ThreadLocalStateGuard as_caller(run->caller);
    const IntraOpThreads threads(run->threads);
    const c10::StreamGuard guard(run->device_stream);
    work(*run, own, number);
  });
  const auto began = std::chrono::steady_clock::now();
  const bool all_back = stages_.run(stage, run->timeout);
  broken_ = !all_back || !calls_.wait(begun, run->timeout);
  if (broken_) {
    run->fail_with(std::make_exception_ptr(DeadlineExceeded(c10::str(
        "[pipeline] a stage or a function had not come back ", to_text(run->timeout), " after the first stage"))));
  }
  arrivals.wait();
  wait_for_sends(*run);
  std::exception_ptr error;
  {
    const std::lock_guard lock(run->mutex);
    error = run->error;
  }
  for (std::size_t i = 0; i < passages.size() && !broken_; ++i) passages[i]->release();
  if (error) std::rethrow_exception(error);
  if (run->step && detail::tracing.load(std::memory_order_relaxed) != 0) {
    detail::end_span("communication", kPipelineStep, began);
  }
  finish(*run);
  divides ? share_results(*run, parts, *before) : job.join_parts(replica, parts);
}

// A collective of the replicas of each line, in their first run.
void Pipeline::make_lines() {
  lines_.resize(static_cast<std::size_t>(stages_here_) + 1);
  for (const Axis& axis : core_.topology().axes()) {
    if (axis.role != AxisRole::kModel) continue;
    Communicator& whole = core_.group(axis.name, local_id_);
    for (int stage = 0; stage < stages_here_; ++stage) {
      lines_[static_cast<std::size_t>(stage)][axis.name] = whole.split(/*color=*/0, /*key=*/whole.rank());
    }
    lines_.back()[axis.name] = std::make_unique<StandInLine>(whole.rank(), whole.size());
  }
}

std::shared_ptr<PipelineRun> Pipeline::begin(detail::Job& job, Replica& replica, int chunks) {
  const torch::Device device = replica.device();
  const c10::Stream device_stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  // An aggregate, which std::make_shared() of Clang 14 cannot make.
  // NOLINTNEXTLINE(modernize-make-shared)
  auto run = std::shared_ptr<PipelineRun>(new PipelineRun{.core = core_.shared_from_this(),
                                                          .job = job.shared_from_this(),
                                                          .replica = replica,
                                                          .timeout = core_.plan().exchange.timeout,
                                                          .chunks = chunks,
                                                          .threads = core_.threads_per_replica(),
                                                          .spins = spins_,
                                                          .cut = setup_.cut,
                                                          .all_stages = setup_.stages,
                                                          .first_stage = setup_.first_stage,
                                                          .device_stream = device_stream});
  run->watches = watches_;
  if (lines_.empty()) make_lines();
  run->lines = lines_;
  if (!setup_.axis.empty()) run->line = &core_.group(setup_.axis, local_id_);
  run->stages.resize(static_cast<std::size_t>(stages_here_));
  for (int i = 0; i < stages_here_; ++i) {
    run->stages[static_cast<std::size_t>(i)].place.set_core(core_behind(i * core_.num_local_replicas()));
  }
  return run;
}

// Does what a stage of this process has to do, in the order of the schedule.
void Pipeline::work(PipelineRun& run, const Course& course, int number) const {
  const int stage = setup_.first_stage + number;
  const std::size_t actions = course.schedule.stages()[static_cast<std::size_t>(stage)].size();
  try {
    for (std::size_t place = 0; place < actions; ++place) act(run, course, stage, place);
  } catch (...) {
    run.fail_with(std::current_exception());
  }
  run.end_stage(run.stages[static_cast<std::size_t>(number)]);
}

void Pipeline::act(PipelineRun& run, const Course& course, int stage, std::size_t place) const {
  static const std::vector<int> kNone;
  const PipelineAction& action = course.schedule.stages()[static_cast<std::size_t>(stage)][place];
  const std::vector<int>& idle = run.replica.device().is_cpu() ? course.idle.during(stage, place) : kNone;
  Passage& passage = *run.passages[static_cast<std::size_t>(action.microbatch)];
  std::optional<LoopTeam> team;
  if (!idle.empty() && action.op != PipelineOp::kForward) {
    team.emplace(static_cast<int>(idle.size()) + 1,
                 [&](const std::function<void(int)>& loop) { run.divide(idle, loop); });
  }
  switch (action.op) {
    case PipelineOp::kForward: {
      const TraceSpan span("compute", span_name(action));
      return passage.advance(action.chunk, idle);
    }
    case PipelineOp::kBackward: {
      const TraceSpan span("compute", span_name(action));
      return passage.backward(action.chunk, !course.schedule.splits(action.microbatch, action.chunk));
    }
    case PipelineOp::kWeight: {
      const TraceSpan span("compute", span_name(action));
      return passage.weights(action.chunk);
    }
    case PipelineOp::kReceiveInput:
    case PipelineOp::kReceiveGradient: {
      const TraceSpan span("communication", kStageWait);
      return passage.receive(action.chunk, action.op == PipelineOp::kReceiveGradient);
    }
    case PipelineOp::kSendOutput:
    case PipelineOp::kSendGradient:
      return passage.send(action.chunk, action.op == PipelineOp::kSendGradient);
  }
}

// In the first step that is watched it turns out which tensors the stages use.
void Pipeline::place(const PipelineRun& run) {
  if (run.step->place && !run.watches) {
    open_.insert(run.step->owner);
  } else if (run.step->place) {
    open_.erase(run.step->owner);
    TensorsUsed used;
    for (const Passage* passage : run.passages) {
      used.all.insert(passage->used().all.begin(), passage->used().all.end());
      for (const auto& [tensor, chunks] : passage->used().changed)
        used.changed[tensor].insert(chunks.begin(), chunks.end());
    }
    core_.launch().meet(local_id_, "the first step of a pipeline", &used, [&](std::span<void* const> all) {
      std::vector<const TensorsUsed*> each;
      for (void* own : all) each.push_back(static_cast<const TensorsUsed*>(own));
      run.step->place(each);
    });
  }
  watches_ = !open_.empty();
}

void Pipeline::finish(PipelineRun& run) {
  if (run.step) {
    place(run);
    std::vector<torch::Tensor> sums;
    {
      const torch::NoGradGuard no_grad;
      sums = run.sums->take();
    }
    const LoopTeam all_stages(stages_here_, [&](const std::function<void(int)>& piece) { stages_.run_to_end(piece); });
    run.step->update(run.replica, std::move(sums));
  }
  for (const auto& act : run.at_end) act(run.replica);
}

}  // namespace

PipelineSchedule checked_schedule(const PipelineSetup& setup, int microbatches) {
  PipelineSchedule schedule = make_schedule(setup.schedule, setup.stages, microbatches);
  const PipelineTimeline timeline = schedule.simulate();
  for (std::size_t stage = 0; stage < timeline.most_alive.size() && setup.most_alive > 0; ++stage) {
    if (timeline.most_alive[stage] <= setup.most_alive) continue;
    fail<InvalidArgument>("[pipeline] schedule ", schedule.name(), " of ", microbatches,
                          " microbatches keeps those of ", timeline.most_alive[stage], " on stage ", stage,
                          ", and most_alive is ", setup.most_alive);
  }
  return schedule;
}

MakeRunner pipelines(const PipelineSetup& setup) {
  return [setup](StrategyCore& core, int local_id) { return std::make_unique<Pipeline>(core, local_id, setup); };
}

}  // namespace cohort
