#include "wings/pipeline/strategy/passage.h"

#include <ATen/Functions.h>
#include <ATen/SequenceNumber.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>

#include "base/access.h"
#include "base/cpu_threads.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "device/identity.h"
#include "strategy/absent.h"
#include "strategy/context.h"
#include "strategy/core.h"
#include "wings/pipeline/strategy/absent_operations.h"
#include "wings/pipeline/strategy/messages.h"

namespace cohort {

namespace {

// Says that this thread is in a call for a microbatch while it lives.
class CallContext {
 public:
  explicit CallContext(ReplicaScope& call) { thread_context().replica_scope = &call; }
  CallContext(const CallContext&) = delete;
  CallContext& operator=(const CallContext&) = delete;
  ~CallContext() { thread_context().replica_scope = nullptr; }
};

}  // namespace

void Passage::prepare(std::shared_ptr<PipelineRun> run, const detail::SharePart& part) {
  run_ = std::move(run);
  part_ = part;
  seeded_ = !run_->stream.defined();
  chunks_ = std::vector<Chunk>(static_cast<std::size_t>(run_->chunks));
  allowed_ = done_ = -1;
  idle_ = nullptr;
  current_ = 0;
  ended_ = minimized_ = elsewhere_ = false;
  places_.clear();
  used_ = {};
  written_.clear();
}

at::Generator& Passage::generator() {
  if (!std::exchange(seeded_, true)) generator_.set_current_seed(run_->seed_of(part_.number));
  return generator_;
}

// Stages of one replica are in different microbatches at a time, so that each has ends of its own.
Communicator& Passage::group(std::string_view axis) {
  const int stage = current_ % run_->all_stages - run_->first_stage;
  const StageLines& lines = run_->here(current_) ? run_->lines[static_cast<std::size_t>(stage)] : run_->lines.back();
  const auto line = lines.find(axis);
  if (line != lines.end()) return *line->second;
  require_whole_share("group()");
  return run_->core->group(axis, run_->replica.local_id());
}

void Passage::release() {
  chunks_.clear();
  written_.clear();
  run_.reset();
}

void Passage::serve() {
  const std::shared_ptr<PipelineRun> run = run_;
  {
    std::unique_lock lock(run->mutex);
    place_.sleep();
    const Deadline deadline(run->patience());
    wake_.wait_until(lock, deadline.when(), [&] { return allowed_ >= 0 || run->error; });
    place_.leave();
  }
  std::exception_ptr error;
  try {
    require_allowed(0);
    begin_team();
    const at::ThreadLocalStateGuard as_caller(run->caller);
    const IntraOpThreads threads(run->threads);
    const ReplicaContext context(&run->replica);
    const DeviceScope device(run->replica.logical_device());
    const c10::StreamGuard guard(run->device_stream);
    const CallContext call(*this);
    at(0).graph = {.chunk = 0, .inputs = {}, .outputs = {}, .first_node = at::sequence_number::peek()};
    set_elsewhere(!run->here(0));
    run->job->run_part(run->replica, part_);
    if (current_ != 0) require_cut("its function returned");
  } catch (...) {
    error = std::current_exception();
  }
  hand_over_operations(false);
  team_.reset();
  end(error);
}

void Passage::end(const std::exception_ptr& error) {
  {
    const std::lock_guard lock(run_->mutex);
    ended_ = true;
    if (!error) return turn_back();
  }
  run_->fail_with(error);
}

// Wakes the stage that called this function, on this core: its thread sleeps at once. The run's mutex is held.
void Passage::turn_back() {
  if (!run_->here(current_)) return back_.notify_all();
  WakePlace& stage = run_->stage_of(current_).place;
  stage.set_core(sched_getcpu());
  stage.bind();
  back_.notify_all();
}

void Passage::wake_all() {
  wake_.notify_all();
  back_.notify_all();
}

// Fails, and tells what there was to cut at, unless the model came through all chunks and all names of the cut.
void Passage::require_cut(const char* when) const {
  const auto passed = [&] {
    const std::string places = c10::Join(", ", std::vector<std::string>(places_.begin(), places_.end()));
    return places.empty() ? "which it passed none" : "which it passed these that are not named: " + places;
  };
  if (current_ != run_->chunks - 1) {
    fail<InvalidArgument>("[pipeline] microbatch ", part_.number, " had come through ", current_ + 1, " of the ",
                          run_->chunks, " chunks of the schedule when ", when,
                          "; a model is cut by Stage() layers, next_stage() or the names in PipelineOptions::cut, of ",
                          passed());
  }
  for (const std::string& name : run_->cut) {
    if (begun_.contains(name)) continue;
    fail<InvalidArgument>("[pipeline] PipelineOptions::cut has \"", name, "\", but microbatch ", part_.number,
                          " had not come to a place of that name when ", when, ": the names are those of layers of a ",
                          "Sequential and of stage_place(), of ", passed());
  }
}

void Passage::require_allowed(int chunk) {
  const std::lock_guard lock(run_->mutex);
  if (run_->error) fail<Cancelled>("[pipeline] microbatch ", part_.number, ": another part of the pipeline failed");
  if (allowed_ >= chunk) return;
  fail<DeadlineExceeded>("[pipeline] microbatch ", part_.number, " waited ", to_text(run_->patience()), " for chunk ",
                         chunk, " of the model");
}

void Passage::begin_team() {
  if (idle_ == nullptr || idle_->empty()) return;
  team_.emplace(static_cast<int>(idle_->size()) + 1,
                [this](const std::function<void(int)>& loop) { run_->divide(*idle_, loop); });
}

std::vector<torch::Tensor> Passage::at_cut(const std::vector<torch::Tensor>& values) {
  if (current_ + 1 >= run_->chunks) {
    fail<FailedPrecondition>("[pipeline] microbatch ", part_.number, " came to the end of chunk ", current_,
                             " of a model, but the schedule has ", run_->chunks, " chunks: a model with fewer cuts, ",
                             "and one call of it in a step, would fit");
  }
  const bool was_here = run_->here(current_), is_next_here = run_->here(current_ + 1);
  team_.reset();
  if (was_here) at(current_).graph.outputs = values;
  if (was_here && !is_next_here && seeded_) at(current_).random = generator_.get_state();
  {
    std::unique_lock lock(run_->mutex);
    if (was_here) {
      done_ = current_;
      turn_back();
    }
    if (is_next_here) {
      place_.sleep();
      const Deadline deadline(run_->patience());
      wake_.wait_until(lock, deadline.when(), [&] { return allowed_ > current_ || run_->error; });
      place_.leave();
    }
  }
  if (is_next_here) {
    require_allowed(current_ + 1);
    begin_team();
  }
  ++current_;
  set_elsewhere(!is_next_here);
  std::vector<torch::Tensor> next;
  if (!is_next_here) {
    for (const torch::Tensor& value : values) next.push_back(was_here ? absent_like(value) : value);
    return next;
  }
  if (!was_here) next = take_arrived(values.size());
  for (const torch::Tensor& value : values) {
    if (!was_here) break;
    const bool has_gradient = value.defined() && value.requires_grad();
    next.push_back(value.defined() ? value.detach().set_requires_grad(has_gradient) : value);
  }
  at(current_).graph = {.chunk = current_, .inputs = next, .outputs = {}, .first_node = at::sequence_number::peek()};
  return next;
}

// Takes the values that another process has sent for the chunk that begins.
std::vector<torch::Tensor> Passage::take_arrived(std::size_t count) {
  std::vector<torch::Tensor> values = std::move(at(current_).arrived);
  if (values.size() != count + 1) {
    fail<FailedPrecondition>("[pipeline] microbatch ", part_.number, " came to chunk ", current_, " of the model with ",
                             count, " values, and the process of the chunk before has sent ",
                             values.empty() ? 0 : values.size() - 1, "; all processes run the same program");
  }
  if (values.back().defined()) {
    generator_.set_state(values.back());
    seeded_ = true;
  }
  values.pop_back();
  return values;
}

void Passage::set_elsewhere(bool elsewhere) {
  elsewhere_ = elsewhere;
  const bool has_values = !elsewhere && !lacks_any();
  hand_over_operations(run_->watches || !has_values, run_->watches && has_values ? &input_watch_ : nullptr);
}

void Passage::note_use(const torch::Tensor& tensor) {
  if (run_->watches) used_.all.insert(tensor_id(tensor));
}

void Passage::note_change(const torch::Tensor& tensor) {
  if (run_->watches) used_.changed[tensor_id(tensor)].insert(current_);
}

bool Passage::begins_at(std::string_view name) {
  const bool begins = std::find(run_->cut.begin(), run_->cut.end(), name) != run_->cut.end();
  (begins ? begun_ : places_).emplace(name);
  return begins;
}

void Passage::minimize(LaterStep step) {
  require_cut("its loss was minimized");
  if (std::exchange(minimized_, true)) {
    fail<Unimplemented>("[pipeline] minimize() was called twice for microbatch ", part_.number,
                        "; a step of a pipeline has one loss and one optimizer");
  }
  torch::Tensor loss = std::exchange(step.loss, {});
  if (!elsewhere_) at(current_).graph.outputs = {std::move(loss)};
  const std::lock_guard lock(run_->mutex);
  if (run_->step && run_->step->owner != step.owner) {
    fail<FailedPrecondition>("[pipeline] the microbatches of a step were minimized by different optimizers");
  }
  if (run_->step) return;
  run_->sums = std::make_unique<GradientSums>(step.parameters, run_->chunks);
  run_->step = std::move(step);
}

// The first microbatch asks for all.
void Passage::after_step(std::function<void(const Replica&)> act) {
  if (part_.number > 0) return;
  const std::lock_guard lock(run_->mutex);
  run_->at_end.push_back(std::move(act));
}

template <typename Ready>
void Passage::wait_in_stage(std::unique_lock<std::mutex>& lock, std::condition_variable& wake, int chunk,
                            const char* what, const Ready& ready) {
  const Deadline deadline(run_->timeout);
  PipelineRun::Stage& own = run_->stage_of(chunk);
  const bool in_time = run_->wait(own, wake, lock, deadline, own.has_begun, [&] { return run_->error || ready(); });
  if (run_->error) fail<Cancelled>("[pipeline] another part of the pipeline failed");
  if (in_time) return;
  fail<DeadlineExceeded>("[pipeline] stage ", chunk % run_->all_stages, " waited ", to_text(run_->timeout), " for ",
                         what, " of microbatch ", part_.number, " in chunk ", chunk,
                         ended_ ? "" : c10::str("; its function is in chunk ", done_ + 1));
}

void Passage::advance(int chunk, const std::vector<int>& idle) {
  std::unique_lock lock(run_->mutex);
  run_->stage_of(chunk).has_begun = true;
  if (ended_) return;
  allowed_ = chunk;
  idle_ = &idle;
  place_.set_core(sched_getcpu());
  place_.bind();
  wake_.notify_all();
  wait_in_stage(lock, back_, chunk, "the forward pass", [&] { return ended_ || done_ >= chunk; });
}

void Passage::receive(int chunk, bool gradient) {
  std::unique_lock lock(run_->mutex);
  const Chunk& other = at(gradient ? chunk + 1 : chunk - 1);
  wait_in_stage(lock, run_->stage_of(chunk).wake, chunk, gradient ? "the gradient of the output" : "the input",
                [&] { return gradient ? other.gradient_sent : other.sent; });
}

void Passage::arrive(int chunk, bool gradient, std::vector<torch::Tensor> values) {
  const std::lock_guard lock(run_->mutex);
  if (gradient) {
    at(chunk).gradients = std::move(values);
    at(chunk + 1).gradient_sent = true;
  } else {
    at(chunk).arrived = std::move(values);
    at(chunk - 1).sent = true;
  }
  PipelineRun::Stage& own = run_->stage_of(chunk);
  own.call();
}

void Passage::send_away(int chunk, bool gradient) {
  StageMessage message{.kind = gradient ? StageMessage::Kind::kGradient : StageMessage::Kind::kOutput,
                       .microbatch = static_cast<int64_t>(part_.number),
                       .chunk = gradient ? chunk - 1 : chunk + 1};
  if (gradient) {
    message.values = std::exchange(at(chunk - 1).gradients, {});
  } else {
    message.values = at(chunk).graph.outputs;
    message.values.push_back(at(chunk).random);
  }
  const std::lock_guard lock(run_->sending);
  std::vector<Work<>> works = send_message(*run_->line, run_->process_of(static_cast<int>(message.chunk)), message);
  run_->sends.insert(run_->sends.end(), works.begin(), works.end());
}

void Passage::send(int chunk, bool gradient) {
  if (!run_->here(gradient ? chunk - 1 : chunk + 1)) return send_away(chunk, gradient);
  const std::lock_guard lock(run_->mutex);
  (gradient ? at(chunk).gradient_sent : at(chunk).sent) = true;
  PipelineRun::Stage& other = run_->stage_of(gradient ? chunk - 1 : chunk + 1);
  other.call();
}

void Passage::backward(int chunk, bool whole) {
  Chunk& own = at(chunk);
  GradientSums* sums = nullptr;
  {
    // The function goes through the chunks of other processes meanwhile, and says at its end what to do.
    std::unique_lock lock(run_->mutex);
    wait_in_stage(lock, back_, chunk, "the end of the function", [&] { return ended_; });
    if (minimized_) sums = run_->sums.get();
  }
  if (sums != nullptr) {
    if (chunk == run_->chunks - 1) own.gradients = {at::ones_like(own.graph.outputs.front())};
    std::vector<torch::Tensor> gradients = std::exchange(own.gradients, {});
    own.backward = std::make_unique<ChunkBackward>(std::move(own.graph), *sums);
    std::vector<torch::Tensor> of_inputs = whole ? own.backward->whole(gradients) : own.backward->inputs(gradients);
    if (whole) own.backward.reset();
    if (chunk > 0) at(chunk - 1).gradients = std::move(of_inputs);
  }
  own.graph = {};
}

void Passage::weights(int chunk) {
  if (const auto backward = std::move(at(chunk).backward)) backward->weights();
}

}  // namespace cohort
