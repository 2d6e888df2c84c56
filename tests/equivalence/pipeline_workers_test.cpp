// Models whose stages lie with the workers of a cluster against one device: 20 steps of Adam in float64, with
// microbatches of different sizes, and last batches that are short. pipeline_processes_test.cpp has every schedule on
// two and three.
#include "tests/equivalence/pipeline_workers.h"
#include "tests/equivalence/weights_file.h"

#include <atomic>

#include "cohort/models/layouts.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::equivalence::pipeline_workers_test {
namespace {

using namespace pipeline_workers;

TEST(PipelineOverWorkers, LearnsAsOneDevice) {
  const Outcome wanted = under(OneDeviceStrategy("/CPU:0"));
  EXPECT_LT(wanted.history["loss"].back(), wanted.history["loss"].front());
  struct Kind {
    Shape shape;
    PipelineScheduleOptions schedule;
  };
  const std::vector<Kind> kinds = {{{}, ScheduleInterleaved{.microbatches = 5, .chunks = 2}},
                                   {{.devices = 2, .stages = 4}, Schedule1F1B{.microbatches = 5}}};
  for (const Kind& kind : kinds) {
    const int chunks = kind.shape.stages * chunks_of(kind.schedule);
    SCOPED_TRACE(c10::str(kind.shape.workers, " workers, ", make_schedule(kind.schedule, kind.shape.stages).name()));
    with_stages(
        kind.shape, kind.schedule,
        [&](const MultiWorkerPipelineStrategy& strategy) { expect_like(under(strategy), wanted); }, cut_of(chunks));
  }
}

TEST(PipelineOverWorkers, LearnsBesideTheBatchAsOneDevice) {
  const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), adam(0.05));
  for (const Shape& shape : {Shape{.workers = 4, .batch = 2}, Shape{.devices = 2, .batch = 2}}) {
    SCOPED_TRACE(c10::str(shape.workers, " workers"));
    with_stages(
        shape, Schedule1F1B{.microbatches = 3},
        [&](const MultiWorkerPipelineStrategy& strategy) {
          EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
          expect_like(under(strategy, adam(0.05)), wanted);
        },
        cut_of(2));
  }
}

// Chunk 4 is the first worker's again, so that both stages of the second one send it messages at the same time.
TEST(PipelineOverWorkers, TwoStagesOfAWorkerSendToTheSameOne) {
  std::vector<Layer> net;
  for (int i = 0; i < 7; ++i) net.emplace_back(Dense(7 + i, Activation::kTanh));
  net.emplace_back(Dense(kLabels));
  const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), adam(), net, /*epochs=*/1);
  with_stages(
      {.devices = 2, .stages = 4}, ScheduleInterleaved{.microbatches = 8, .chunks = 2},
      [&](const MultiWorkerPipelineStrategy& strategy) { expect_like(under(strategy, adam(), net, 1), wanted); },
      {"dense_1", "dense_2", "dense_3", "dense_4", "dense_5", "dense_6", "dense_7"});
}

TEST(PipelineOverWorkers, NormsAndScalesAreThoseOfAllStages) {
  AdamOptions options{.learning_rate = 0.02};
  options.gradient.global_clipnorm = 0.05;
  options.gradient.loss_scale = LossScale{};
  options.gradient.gradient_accumulation_steps = 2;
  const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), Adam(options));
  with_stages(
      {}, ScheduleZeroBubbleH1{.microbatches = 4},
      [&](const MultiWorkerPipelineStrategy& strategy) { expect_like(under(strategy, Adam(options)), wanted); },
      cut_of(2));
}

TEST(PipelineOverWorkers, StagesOfPartsLearnAsOneDevice) {
  const mesh_runs::Net net = mesh_runs::nets()[3];
  const Outcome wanted = mesh_runs::under(OneDeviceStrategy("/CPU:0"), net, adam(0.05));
  for (const auto& [workers, batch] : {std::pair(2, 1), std::pair(4, 2)}) {
    SCOPED_TRACE(workers);
    const PipelineOptions options = stages_of_parts(workers, batch, Schedule1F1B{.microbatches = 3});
    with_stages(
        workers, [&](int /*rank*/) { return options; },
        [&](const MultiWorkerPipelineStrategy& strategy) {
          EXPECT_EQ(strategy.num_replicas_in_sync(), batch);
          expect_like(mesh_runs::under(strategy, net, adam(0.05)), wanted);
        });
  }
}

TEST(PipelineOverWorkers, PartsOfSeveralWorkersAreNamed) {
  const PipelineOptions options{.mesh = DeviceMesh({2, 1}, {"model", "stage"}, devices_of_workers(2, 1)),
                                .layout = mesh_runs::nets()[3].layout};
  EXPECT_THAT(testing::error_of<Unimplemented>([&] { const MultiWorkerPipelineStrategy strategy(options); }),
              ::testing::HasSubstr("which do not go together: beside stages the axis lies within each worker"));
}

TEST(PipelineOverWorkers, AWorkerAloneHasAllStages) {
  const MultiWorkerPipelineStrategy strategy({.mesh = DeviceMesh({2, 2}, {"batch", "stage"}, cpu_devices(4)),
                                              .schedule = Schedule1F1B{.microbatches = 3},
                                              .cut = cut_of(2)});
  EXPECT_EQ(strategy.num_workers(), 1);
  expect_like(under(strategy), under(OneDeviceStrategy("/CPU:0")));
}

// Sequences, whose kernels for whole ones are several operations.
TEST(PipelineOverWorkers, RecurrentLayersLearnAsOnOneDevice) {
  const std::vector<Layer> net = {LSTM({.units = 5, .return_sequences = true}),
                                  GRU({.units = 4, .return_sequences = true}), Bidirectional(LSTM(3)), Dense(kLabels)};
  const auto learned = [&](const Strategy& strategy) {
    const auto scope = strategy.scope();
    Sequential model(net, {.dtype = torch::kDouble});
    model.build({4, 6});
    set_drawn_weights(model);
    model.compile({.optimizer = adam(),
                   .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {SparseCategoricalAccuracy()}});
    return outcome_of(model, batches_of({4, 6}), kEpochs);
  };
  const Outcome wanted = learned(OneDeviceStrategy("/CPU:0"));
  EXPECT_LT(wanted.history["loss"].back(), wanted.history["loss"].front());
  with_stages({.workers = 3, .stages = 3}, Schedule1F1B{.microbatches = 5},
              [&](const MultiWorkerPipelineStrategy& strategy) { expect_like(learned(strategy), wanted); },
              {"gru", "bidirectional"});
}

TEST(PipelineOverWorkers, AVisionTransformerLearnsAsOnOneDevice) {
  const models::VisionTransformerOptions options{.image_size = 4,
                                                 .patch_size = 2,
                                                 .num_layers = 3,
                                                 .num_heads = 2,
                                                 .hidden_dim = 6,
                                                 .mlp_dim = 8,
                                                 .num_classes = kLabels,
                                                 .in_channels = 2};
  const auto learned = [&](const Strategy& strategy) {
    const auto scope = strategy.scope();
    Model model([options] {
      auto made = models::vision_transformer(options);
      made->to(torch::kDouble);
      return made;
    });
    set_drawn_weights(model);
    model.compile({.optimizer = adam(),
                   .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {SparseCategoricalAccuracy()}});
    return outcome_of(model, batches_of({2, 4, 4}), kEpochs);
  };
  const Outcome wanted = learned(OneDeviceStrategy("/CPU:0"));
  EXPECT_LT(wanted.history["loss"].back(), wanted.history["loss"].front());
  with_stages(
      {.workers = 3, .stages = 3}, ScheduleZeroBubbleH1{.microbatches = 5},
      [&](const MultiWorkerPipelineStrategy& strategy) { expect_like(learned(strategy), wanted); },
      layouts::pipeline_cut(options, 3));
}

// Each worker has the parameters, gradients and slots of its stage, and all of them together what one device has.
TEST(PipelineOverWorkers, AWorkerKeepsItsStage) {
  const std::vector<Layer> net = {Dense(16, Activation::kTanh), Dense(12, Activation::kTanh), Dense(kLabels)};
  const auto bytes_of = [&](const Strategy& strategy) {
    const auto scope = strategy.scope();
    Sequential model = made(net, Adam({.learning_rate = 0.02}));
    model.fit(batches(), {.epochs = 1, .verbose = Verbose::kSilent});
    EXPECT_EQ(model.weights().size(), 6U);
    return model.optimizer().state_bytes();
  };
  const StateBytes all = bytes_of(OneDeviceStrategy("/CPU:0"));
  std::vector<StateBytes> each(2);
  with_stages({}, Schedule1F1B{.microbatches = 3},
              [&](const MultiWorkerPipelineStrategy& strategy) {
                each[static_cast<std::size_t>(strategy.worker_rank())] = bytes_of(strategy);
              },
              {"dense_1"});
  EXPECT_LT(each[0].slots, each[1].slots);
  EXPECT_EQ(each[0].parameters + each[1].parameters, all.parameters);
  EXPECT_EQ(each[0].gradients + each[1].gradients, all.gradients);
  EXPECT_EQ(each[0].slots + each[1].slots, all.slots);
}

TEST(PipelineOverWorkers, AWorkerKeepsItsStageOfTwoModelsInTurn) {
  std::atomic<int64_t> all = 0;
  std::vector<int64_t> bytes(2);
  Trace trace({.file = {}});
  with_stages({}, Schedule1F1B{.microbatches = 2}, [&](const MultiWorkerPipelineStrategy& strategy) {
    const auto make = [] { return torch::nn::ModuleList(torch::nn::Linear(6, 8), torch::nn::Linear(8, 6)); };
    std::vector<Mirrored<torch::nn::ModuleList>> nets;
    std::vector<MirroredOptimizer> rules;
    for (int i = 0; i < 2; ++i) {
      nets.push_back(strategy.mirror(make));
      rules.push_back(strategy.optimizer(nets.back(), SGD()));
    }
    all = rules[1].state_bytes().parameters;
    for (std::size_t step = 0; step < 6; ++step) {
      strategy.run(
          [&](Replica& replica, const Example& part) {
            torch::nn::ModuleList net = nets[step % 2][replica];
            const torch::Tensor x = next_stage(net->at<torch::nn::LinearImpl>(0).forward(part.x));
            rules[step % 2][replica].minimize(
                replica.global_mean(net->at<torch::nn::LinearImpl>(1).forward(x).square()));
          },
          PerReplica<Example>({Example{.x = torch::ones({4, 6})}}));
    }
    EXPECT_EQ(rules[0].state_bytes().parameters, rules[1].state_bytes().parameters);
    bytes[static_cast<std::size_t>(strategy.worker_rank())] = rules[1].state_bytes().parameters;
  });
  EXPECT_EQ(bytes[0] + bytes[1], all);
  EXPECT_LT(trace.finish().seconds_of.size(), 10) << "threads of a single run have no lines of their own";
}

TEST(PipelineOverWorkers, CheckpointsAreThoseOfOtherStrategies) {
  expect_checkpoints_of_one_device(
      [](const OfStages& fn) { with_stages({}, Schedule1F1B{.microbatches = 5}, fn, cut_of(2)); });
}

TEST(PipelineOverWorkers, AFileOfWeightsHasThoseOfAllStages) {
  const testing::TemporaryFolder folder;
  with_stages(
      {.workers = 3, .stages = 3}, Schedule1F1B{.microbatches = 5},
      [&](const MultiWorkerPipelineStrategy& strategy) {
        const auto scope = strategy.scope();
        Sequential model = made(layers(), adam());
        (void)model.fit(batches(), {.epochs = 1, .verbose = Verbose::kSilent});
        expect_whole_file(model, folder.path());
      },
      cut_of(3));
}

// A worker's microbatches go through the chunks of others side by side, and ask at the same time what the last step
// was.
TEST(PipelineOverWorkers, CountsEachStepOnce) {
  constexpr int kSteps = 30;
  with_stages({}, ScheduleGPipe{.microbatches = 8},
              [&](const MultiWorkerPipelineStrategy& strategy) {
                const auto net = strategy.mirror([] {
                  return torch::nn::Sequential(torch::nn::Linear(1, 2), std::make_shared<StageMark>(),
                                               torch::nn::Linear(2, 1));
                });
                const MirroredOptimizer sgd = strategy.optimizer(net, SGD({.learning_rate = 1e-3}));
                const GlobalBatch batch({Example{.x = torch::ones({16, 1})}}, 16);
                for (int step = 0; step < kSteps; ++step) {
                  strategy.run(
                      [&](Replica& replica, const Example& part) {
                        sgd[replica].minimize(replica.global_mean(net[replica]->forward(part.x)));
                      },
                      batch);
                }
                EXPECT_EQ(sgd.iterations(), kSteps);
              },
              {});
}

// Whatever the processes, a microbatch draws the same numbers.
TEST(PipelineOverWorkers, DropsOutAsInOneProcess) {
  const std::vector<Layer> net = {Dense(8),     Dropout(0.3), Dense(8, Activation::kRelu),
                                  Dropout(0.2), Dense(8),     Dense(kLabels)};
  const std::vector<std::string> cut = {"dense_1", "dense_2"};
  const PipelineStrategy here({.devices = cpu_devices(3), .schedule = Schedule1F1B{.microbatches = 5}, .cut = cut});
  here.set_seed(5);
  const Outcome wanted = under(here, adam(), net);
  with_stages(
      {.workers = 3, .stages = 3}, ScheduleGPipe{.microbatches = 5},
      [&](const MultiWorkerPipelineStrategy& strategy) {
        strategy.set_seed(5);
        expect_like(under(strategy, adam(), net), wanted);
      },
      cut);
}

}  // namespace
}  // namespace cohort::equivalence::pipeline_workers_test
