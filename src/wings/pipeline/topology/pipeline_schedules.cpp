// The orders in which the stages of the known schedules work; of_work() adds the messages.
#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "cohort/parallel/pipeline_schedule.h"

namespace cohort {

namespace {

using Work = std::vector<std::vector<PipelineAction>>;

PipelineAction forward(int microbatch, int chunk) {
  return {PipelineOp::kForward, microbatch, chunk};
}
PipelineAction backward(int microbatch, int chunk) {
  return {PipelineOp::kBackward, microbatch, chunk};
}
PipelineAction weight(int microbatch, int chunk) {
  return {PipelineOp::kWeight, microbatch, chunk};
}

PipelineSchedule make(const ScheduleGPipe& /*options*/, int stages, int microbatches) {
  Work work(static_cast<std::size_t>(stages));
  for (int stage = 0; stage < stages; ++stage) {
    auto& own = work[static_cast<std::size_t>(stage)];
    for (int m = 0; m < microbatches; ++m) own.push_back(forward(m, stage));
    for (int m = 0; m < microbatches; ++m) own.push_back(backward(m, stage));
  }
  return PipelineSchedule::of_work("gpipe", microbatches, 1, work);
}

// A stage does so many forwards first that the first backward comes to it when it is through with them. With `weights`
// the gradients of the parameters are as many microbatches behind as there are stages before: they fill the time in
// which the stage would wait for gradients at the end, and no stage keeps more microbatches than the first one.
PipelineSchedule one_forward_one_backward(const char* name, int stages, int microbatches, bool weights) {
  Work work(static_cast<std::size_t>(stages));
  for (int stage = 0; stage < stages; ++stage) {
    auto& own = work[static_cast<std::size_t>(stage)];
    int forwards = 0, backwards = 0, done = 0;
    while (forwards < std::min(microbatches, stages - stage - 1)) own.push_back(forward(forwards++, stage));
    while (backwards < microbatches) {
      if (forwards < microbatches) own.push_back(forward(forwards++, stage));
      own.push_back(backward(backwards++, stage));
      if (weights && backwards - done > stage) own.push_back(weight(done++, stage));
    }
    while (weights && done < microbatches) own.push_back(weight(done++, stage));
  }
  return PipelineSchedule::of_work(name, microbatches, 1, work);
}

PipelineSchedule make(const Schedule1F1B& /*options*/, int stages, int microbatches) {
  return one_forward_one_backward("1f1b", stages, microbatches, /*weights=*/false);
}

PipelineSchedule make(const ScheduleZeroBubbleH1& /*options*/, int stages, int microbatches) {
  return one_forward_one_backward("zero_bubble_h1", stages, microbatches, /*weights=*/true);
}

// Microbatches go through the chunks in groups of as many as there are stages. A last group that is not full is one of
// which some are left out, so that the order is one of those that come to an end.
PipelineSchedule make(const ScheduleInterleaved& options, int stages, int microbatches) {
  std::vector<std::pair<int, int>> order;  // microbatch and chunk of a stage, in the order of their forwards
  for (int group = 0; group < microbatches; group += stages) {
    for (int chunk = 0; chunk < options.chunks; ++chunk) {
      for (int m = group; m < group + stages; ++m) order.emplace_back(m, chunk);
    }
  }
  const int count = static_cast<int>(order.size());
  Work work(static_cast<std::size_t>(stages));
  for (int stage = 0; stage < stages; ++stage) {
    auto& own = work[static_cast<std::size_t>(stage)];
    const auto add = [&](int number, bool is_forward) {
      const auto& [m, chunk] = order[static_cast<std::size_t>(number)];
      if (m >= microbatches) return;
      if (is_forward) own.push_back(forward(m, chunk * stages + stage));
      if (!is_forward) own.push_back(backward(m, (options.chunks - 1 - chunk) * stages + stage));
    };
    const int first = std::min(count, (stages - stage - 1) * 2 + (options.chunks - 1) * stages);
    for (int number = 0; number < first; ++number) add(number, true);
    for (int number = 0; number < count; ++number) {
      if (first + number < count) add(first + number, true);
      add(number, false);
    }
  }
  return PipelineSchedule::of_work("interleaved", microbatches, options.chunks, work);
}

PipelineSchedule make(const ScheduleOfOnesOwn& options, int stages, int microbatches) {
  if (!options.make) fail<InvalidArgument>("[pipeline] schedule: the function of a schedule of one's own is empty");
  PipelineSchedule made = options.make(stages, microbatches);
  if (made.num_stages() == stages && made.microbatches() == microbatches &&
      made.num_chunks() == stages * options.chunks) {
    return made;
  }
  fail<InvalidArgument>("[pipeline] schedule ", made.name(), " has ", made.num_stages(), " stages, ", made.num_chunks(),
                        " chunks and ", made.microbatches(), " microbatches, wanted ", stages, ", ",
                        stages * options.chunks, " and ", microbatches);
}

}  // namespace

int microbatches_of(const PipelineScheduleOptions& options) {
  return std::visit([](const auto& each) { return each.microbatches; }, options);
}

int chunks_of(const PipelineScheduleOptions& options) {
  return std::visit(
      [](const auto& each) {
        if constexpr (requires { each.chunks; }) {
          return each.chunks;
        } else {
          return 1;
        }
      },
      options);
}

PipelineSchedule make_schedule(const PipelineScheduleOptions& options, int stages) {
  return make_schedule(options, stages, microbatches_of(options));
}

PipelineSchedule make_schedule(const PipelineScheduleOptions& options, int stages, int microbatches) {
  if (stages < 1 || microbatches < 1 || chunks_of(options) < 1) {
    fail<InvalidArgument>("[pipeline] schedule: ", microbatches, " microbatches, ", chunks_of(options),
                          " chunks a stage and ", stages, " stages, wanted 1 or more of each");
  }
  return std::visit([&](const auto& each) { return make(each, stages, microbatches); }, options);
}

}  // namespace cohort
