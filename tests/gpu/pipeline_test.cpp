// Pipelines whose stages lie with workers, each on a card of its own, against one device on the CPU.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <array>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "models/command/mesh_makers.h"
#include "tests/equivalence/pipeline_workers.h"
#include "tests/gpu/cards.h"
#include "tests/support/errors.h"

namespace cohort::pipeline_on_cards_test {
namespace {

using namespace gpu;
using namespace equivalence;

using equivalence::pipeline_workers::adam;
using equivalence::pipeline_workers::cut_of;
using equivalence::pipeline_workers::OfStages;
using equivalence::pipeline_workers::under;
using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

// Worker r has these devices.
using DevicesOfWorkers = std::vector<std::vector<std::string>>;

DevicesOfWorkers a_card_each() {
  const auto names = on_cards(2);
  return {{names[0]}, {names[1]}};
}

// Both lines go from one card to the other.
DevicesOfWorkers parts_of_a_card_each() {
  return {{"/GPU:0", "/GPU:1"}, {"/GPU:2", "/GPU:3"}};
}

PipelineOptions stages_on(const DevicesOfWorkers& devices, const PipelineScheduleOptions& schedule,
                          const std::vector<std::string>& cut) {
  std::vector<std::string> all;
  for (std::size_t worker = 0; worker < devices.size(); ++worker) {
    for (const std::string& device : devices[worker]) all.push_back(c10::str("/job:worker/task:", worker, device));
  }
  const int lines = static_cast<int>(devices.front().size());
  return {.mesh = lines == 1 ? DeviceMesh({2}, {"stage"}, all) : DeviceMesh({lines, 2}, {"batch", "stage"}, all),
          .schedule = schedule,
          .cut = cut,
          .exchange = {.threads_per_replica = 1}};
}

void with_stages_on(const DevicesOfWorkers& devices, const PipelineScheduleOptions& schedule, const OfStages& fn,
                    const std::vector<std::string>& cut = cut_of(2)) {
  const PipelineOptions options = stages_on(devices, schedule, cut);
  equivalence::pipeline_workers::with_stages(
      static_cast<int>(devices.size()), [&](int /*rank*/) { return options; }, fn);
}

Optimizer clipping_adam() {
  AdamOptions options{.learning_rate = 0.02};
  options.gradient.global_clipnorm = 0.05;
  options.gradient.loss_scale = LossScale{};
  return Adam(options);
}

// The outcome has the metrics of an evaluation, predictions and the weights.
TEST(PipelineOnCards, LearnsAsOneDevice) {
  COHORT_NEEDS_PLACES(2);
  const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), clipping_adam());
  EXPECT_LT(wanted.history["loss"].back(), wanted.history["loss"].front());
  const std::vector<PipelineScheduleOptions> schedules = {Schedule1F1B{.microbatches = 5},
                                                          ScheduleZeroBubbleH1{.microbatches = 4},
                                                          ScheduleInterleaved{.microbatches = 4, .chunks = 2}};
  for (const PipelineScheduleOptions& schedule : schedules) {
    SCOPED_TRACE(make_schedule(schedule, 2).name());
    with_stages_on(
        a_card_each(), schedule,
        [&](const MultiWorkerPipelineStrategy& strategy) { expect_like(under(strategy, clipping_adam()), wanted); },
        cut_of(2 * chunks_of(schedule)));
  }
}

TEST(PipelineOnCards, LearnsBesideTheBatchAsOneDevice) {
  COHORT_NEEDS_PLACES(2);
  const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), adam(0.05));
  with_stages_on(parts_of_a_card_each(), Schedule1F1B{.microbatches = 3},
                 [&](const MultiWorkerPipelineStrategy& strategy) {
                   EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
                   expect_like(under(strategy, adam(0.05)), wanted);
                 });
}

// The stages of a process may be on one card.
TEST(PipelineOnCards, StagesOfAProcessLearnOnOneCard) {
  COHORT_NEEDS_CARDS(1);
  const PipelineStrategy strategy(
      {.devices = parts_of_one_card(), .schedule = ScheduleZeroBubbleH1{.microbatches = 4}, .cut = cut_of(2)});
  expect_like(under(strategy, clipping_adam()), under(OneDeviceStrategy("/CPU:0"), clipping_adam()));
}

// The axis of stages is the outer one.
TEST(PipelineOnCards, LinesOfAProcessLearnOnACardEach) {
  COHORT_NEEDS_CARDS(2);
  const PipelineStrategy strategy(
      {.mesh = DeviceMesh({2, 2}, {"batch", "stage"}, {"/GPU:0", "/GPU:2", "/GPU:1", "/GPU:3"}),
       .schedule = Schedule1F1B{.microbatches = 3},
       .cut = cut_of(2)});
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  expect_like(under(strategy, adam(0.05)), under(OneDeviceStrategy("/CPU:0"), adam(0.05)));
}

TEST(PipelineOnCards, StagesOfAProcessOnTwoCardsAreRefused) {
  COHORT_NEEDS_CARDS(2);
  const auto refused = AllOf(HasSubstr("/GPU:2 and /GPU:0 are different devices of this process"),
                             HasSubstr("one process for each GPU: MultiWorkerPipelineStrategy"),
                             HasSubstr("--distribution_strategy=multi_worker_mirrored"));
  EXPECT_THAT(error_of<Unimplemented>([] { PipelineStrategy({.devices = on_cards(2)}); }), refused);
  EXPECT_THAT(error_of<Unimplemented>([] {
                PipelineStrategy({.devices = {on_cards(1)[0], "/CPU:0"}});
              }),
              HasSubstr("/CPU:0 and /GPU:0 are different devices of this process"));
  EXPECT_THAT(
      error_of<Unimplemented>([] { MultiWorkerPipelineStrategy({.mesh = DeviceMesh({2}, {"stage"}, on_cards(2))}); }),
      refused);
}

// The two would take the same GPU.
TEST(PipelineOnCards, LocalRanksThatDoNotFollowRanksAreRefused) {
  COHORT_NEEDS_CARDS(2);
  const std::array<std::pair<const char*, const char*>, 3> told = {{
      {"TF_CONFIG",
       R"({"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, "task": {"type": "worker", "index": 1}})"},
      {"LOCAL_RANK", "0"},
      {"LOCAL_WORLD_SIZE", "2"},
  }};
  for (const auto& [name, value] : told) ::setenv(name, value, 1);
  StrategyFlags flags;
  flags.mesh = "stage=2";
  flags.num_gpus = 1;
  const std::string error =
      error_of<InvalidArgument>([&] { mesh_maker(flags).make_of_workers(flags, on_cards(1), {}); });
  for (const auto& [name, value] : told) ::unsetenv(name);
  EXPECT_THAT(error, HasSubstr("worker 1 has the local rank 0 of 2, wanted workers whose ranks follow each other"));
}

// The random stream of a microbatch continues on the next worker.
TEST(PipelineOnCards, DropsOutTheSameOnBothWorkers) {
  COHORT_NEEDS_PLACES(2);
  const std::vector<Layer> net = {Dense(8), Dropout(0.3), Dense(8, Activation::kRelu), Dropout(0.2), Dense(6)};
  const auto learned = [&] {
    std::array<Outcome, 2> outcomes;
    with_stages_on(a_card_each(), Schedule1F1B{.microbatches = 3},
                   [&](const MultiWorkerPipelineStrategy& strategy) {
                     strategy.set_seed(5);
                     outcomes[static_cast<std::size_t>(strategy.worker_rank())] =
                         under(strategy, adam(), net, /*epochs=*/1);
                   },
                   {"dense_1"});
    expect_like(outcomes[0], outcomes[1]);
    return outcomes[0];
  };
  expect_like(learned(), learned());
}

class Net final : public torch::nn::Module {
 public:
  Net()
      : first(register_module("first", torch::nn::Linear(6, 8))),
        last(register_module("last", torch::nn::Linear(8, 6))) {
    to(torch::kDouble);
  }
  // The rows have numbers, which stay with the host.
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor rows = torch::arange(x.size(0), torch::kLong);
    const std::vector<torch::Tensor> next = next_stage({first->forward(x).tanh(), rows});
    return last->forward(next[0]) + next[1].to(next[0].device()).unsqueeze(1);
  }
  torch::nn::Linear first;
  torch::nn::Linear last;
};

PerReplica<Example> eight_rows() {
  return PerReplica<Example>({Example{.x = torch::sin(torch::arange(48, torch::kDouble)).view({8, 6})}});
}

TEST(PipelineOnCards, ResultsComeToEveryWorkerOnItsCard) {
  COHORT_NEEDS_PLACES(2);
  with_stages_on(
      a_card_each(), Schedule1F1B{.microbatches = 2},
      [&](const MultiWorkerPipelineStrategy& strategy) {
        const auto net = strategy.mirror([] { return std::make_shared<Net>(); });
        const auto results = strategy.run(
            [&](Replica& replica, const Example& part) {
              const torch::NoGradGuard no_grad;
              const torch::Tensor y = net[replica]->forward(part.x.to(replica.device()));
              return std::make_pair(y, y.cpu().sum());
            },
            eight_rows());
        const torch::Device own =
            find_logical_device(on_cards(2)[static_cast<std::size_t>(strategy.worker_rank())]).torch_device;
        EXPECT_EQ(results[0].first.device(), own);
        EXPECT_TRUE(results[0].second.is_cpu());
        const NamedTensors state = net.state();
        Net whole;
        const torch::NoGradGuard no_grad;
        auto parameters = whole.named_parameters();
        for (const auto& [name, value] : state) parameters[name].copy_(value);
        const torch::Tensor x = eight_rows()[0].x;
        const torch::Tensor wanted = torch::cat({whole.forward(x.slice(0, 0, 4)), whole.forward(x.slice(0, 4, 8))});
        EXPECT_LT((results[0].first.cpu() - wanted).abs().max().item<double>(), 1e-12);
        EXPECT_NEAR(results[0].second.item<double>(), wanted.sum().item<double>(), 1e-10);
      },
      {});
}

TEST(PipelineOnCards, CheckpointsAreThoseOfOneDevice) {
  COHORT_NEEDS_PLACES(2);
  pipeline_workers::expect_checkpoints_of_one_device(
      [](const OfStages& fn) { with_stages_on(a_card_each(), Schedule1F1B{.microbatches = 5}, fn); });
}

TEST(PipelineOnCards, AWorkerThatFailsEndsTheRunOfTheOther) {
  COHORT_NEEDS_PLACES(2);
  std::array<std::string, 2> errors;
  with_stages_on(a_card_each(), Schedule1F1B{.microbatches = 4},
                 [&](const MultiWorkerPipelineStrategy& strategy) {
                   const auto net = strategy.mirror([] { return std::make_shared<Net>(); });
                   const MirroredOptimizer rule = strategy.optimizer(net, SGD());
                   const auto run = [&] {
                     strategy.run(
                         [&](Replica& replica, const Example& part) {
                           const torch::Tensor y = net[replica]->forward(part.x.to(replica.device()));
                           if (strategy.worker_rank() == 1) throw std::runtime_error("the last stage has had enough");
                           rule[replica].minimize(replica.global_mean(y.square()));
                         },
                         eight_rows());
                   };
                   const bool is_last = strategy.worker_rank() == 1;
                   errors[static_cast<std::size_t>(strategy.worker_rank())] =
                       is_last ? error_of<Error>(run) : error_of<Unavailable>(run);
                 },
                 {});
  EXPECT_THAT(errors[0], HasSubstr("the last stage has had enough"));
  EXPECT_THAT(errors[1], HasSubstr("the last stage has had enough"));
}

}  // namespace
}  // namespace cohort::pipeline_on_cards_test
