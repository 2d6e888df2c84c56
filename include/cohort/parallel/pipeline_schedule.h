// Schedules of a pipeline: what each stage does, in which order. A schedule is data, which is checked before it runs.
//
//   const auto schedule = cohort::make_schedule(cohort::Schedule1F1B{.microbatches = 8}, /*stages=*/2);
//   const cohort::PipelineTimeline timeline = schedule.simulate();
//   timeline.bubble;            // 1/9: the part of the time in which stages have nothing to do
//   timeline.most_alive;        // {2, 1}: the microbatches whose activations a stage keeps at once
//   std::cout << timeline.draw();
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

namespace cohort {

// The thing that a stage does for a microbatch and a chunk of the model.
enum class PipelineOp {
  kForward,          // computes the chunk's output
  kBackward,         // computes the gradient of its input; those of its parameters, too, unless there is a kWeight
  kWeight,           // computes the gradients of its parameters
  kReceiveInput,     // waits for the output of the chunk before
  kSendOutput,       // sends its output to the chunk behind
  kReceiveGradient,  // waits for the gradient of its output from the chunk behind
  kSendGradient,     // sends the gradient of its input to the chunk before
};

// One line of a schedule. A model that is cut for S stages has C * S chunks, numbered in the order of the model; chunk
// c lies on stage c % S.
struct PipelineAction {
  PipelineOp op = PipelineOp::kForward;  // the thing that is done
  int microbatch = 0;                    // from 0
  int chunk = 0;                         // from 0

  bool operator==(const PipelineAction&) const = default;
  // Returns a text such as "forward of microbatch 3 in chunk 1".
  std::string to_string() const;
};

// The time that an action takes in a simulation, in any unit.
struct PipelineCosts {
  double forward = 1.0;   // of a chunk
  double backward = 1.0;  // the gradient of a chunk's input
  double weight = 1.0;    // the gradients of a chunk's parameters, alone or after `backward` in one action
  double message = 0.0;   // between the sending of a message and its arrival; stages work meanwhile
};

// An action of a simulation.
struct PipelineSpan {
  PipelineAction action;  // forward, backward or weight
  double begin = 0.0;     // in the unit of the costs, from the beginning of the first action
  double end = 0.0;       // likewise
};

// The course of a schedule as it was simulated.
struct PipelineTimeline {
  double time = 0.0;            // from the first action to the last
  double bubble = 0.0;          // the part of the stages' time in which they wait: 0 to 1
  std::vector<int> most_alive;  // by stage: the most microbatches, of all its chunks, whose activations it keeps
  std::vector<std::vector<PipelineSpan>> stages;  // forward, backward and weight of each stage

  // Returns a picture of a line a stage: F, B and W with the number of the microbatch, a column a unit of time.
  std::string draw(double unit = 1.0) const;
};

// An immutable value.
class PipelineSchedule {
 public:
  // `stages` has the actions of each stage. InvalidArgument names the stage and the action: one that lacks, is there
  // twice, belongs to another stage, or is for a microbatch or chunk that is not there; microbatches that do not come
  // to a chunk's forward in their order, which statistics of a batch norm and random numbers go by.
  PipelineSchedule(std::string name, int microbatches, int chunks_per_stage,
                   std::vector<std::vector<PipelineAction>> stages);
  // Makes a schedule of forward, backward and weight alone: each receives what it needs at the last moment, and sends
  // at once. InvalidArgument: see the constructor.
  static PipelineSchedule of_work(std::string name, int microbatches, int chunks_per_stage,
                                  const std::vector<std::vector<PipelineAction>>& stages);

  // Returns a name such as "1f1b".
  const std::string& name() const { return name_; }
  // Returns the number of stages.
  int num_stages() const { return static_cast<int>(stages_.size()); }
  // Returns the number of microbatches.
  int microbatches() const { return microbatches_; }
  // Returns the number of chunks of all stages.
  int num_chunks() const { return chunks_per_stage_ * num_stages(); }
  // Returns whether the gradients of a chunk's parameters for a microbatch have an action of their own.
  bool splits(int microbatch, int chunk) const;
  // Returns the actions of each stage, in their order.
  const std::vector<std::vector<PipelineAction>>& stages() const { return stages_; }

  // Plays the schedule. InvalidArgument: it ends with stages that wait for each other; the message has what each of
  // them waits for.
  PipelineTimeline simulate(const PipelineCosts& costs = {}) const;

 private:
  void check();
  // Returns the place of a chunk of a microbatch in splits_.
  std::size_t place_of(int microbatch, int chunk) const;

  std::string name_;
  int microbatches_ = 1;
  int chunks_per_stage_ = 1;
  std::vector<std::vector<PipelineAction>> stages_;
  std::vector<bool> splits_;  // [microbatch * chunks + chunk]
};

// All forwards, then all backwards (Huang et al., "GPipe", arXiv:1811.06965). Bubble (S - 1) / (M + S - 1) of M
// microbatches on S stages, M microbatches alive.
struct ScheduleGPipe {
  int microbatches = 8;  // the parts of a replica's share of a batch
};

// A backward as soon as there can be one (Narayanan et al., "PipeDream-Flush", arXiv:2006.09503). The bubble of GPipe,
// min(M, S - s) microbatches alive on stage s.
struct Schedule1F1B {
  int microbatches = 8;  // the parts of a replica's share of a batch
};

// 1F1B with several chunks a stage (Narayanan et al., "Megatron-LM", arXiv:2104.04473). Bubble
// (S - 1) / (C * M + S - 1) where S divides M.
struct ScheduleInterleaved {
  int microbatches = 8;  // the parts of a replica's share of a batch
  int chunks = 2;        // C, the chunks of each stage
};

// 1F1B in which the gradients of the parameters fill the waits (Qi et al., "Zero Bubble Pipeline Parallelism",
// arXiv:2401.10241, H1). With forward F, backward B and weight W the stages wait (S - 1) * (F + B - W) instead of
// (S - 1) * (F + B + W); at most S microbatches alive.
struct ScheduleZeroBubbleH1 {
  int microbatches = 8;  // the parts of a replica's share of a batch
};

// A schedule of one's own.
struct ScheduleOfOnesOwn {
  int microbatches = 8;  // the parts of a replica's share of a batch
  int chunks = 1;        // the chunks of each stage
  // Makes the schedule for so many stages and microbatches, of which a short batch has less.
  std::function<PipelineSchedule(int stages, int microbatches)> make = {};
};

// Any of them.
using PipelineScheduleOptions =
    std::variant<Schedule1F1B, ScheduleGPipe, ScheduleInterleaved, ScheduleZeroBubbleH1, ScheduleOfOnesOwn>;

// Returns the number of microbatches of the options.
int microbatches_of(const PipelineScheduleOptions& options);
// Returns the chunks of each stage.
int chunks_of(const PipelineScheduleOptions& options);
// Makes the schedule for so many stages, and for the microbatches of the options. InvalidArgument: a number is below 1,
// or a function of one's own is empty or makes a schedule of other numbers.
PipelineSchedule make_schedule(const PipelineScheduleOptions& options, int stages);
// Makes it for another number of microbatches.
PipelineSchedule make_schedule(const PipelineScheduleOptions& options, int stages, int microbatches);

}  // namespace cohort
