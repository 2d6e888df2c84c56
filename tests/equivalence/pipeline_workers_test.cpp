// Models whose stages lie with the workers of a cluster against one device: 20 steps of Adam in float64, with every
// schedule, microbatches of different sizes, and last batches that are short.
#include "tests/equivalence/pipeline_workers.h"
#include "tests/equivalence/weights_file.h"

#include <atomic>

#include "base/access.h"
#include "cohort/models/layouts.h"
#include "strategy/core.h"
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
  const std::vector<Kind> kinds = {{{}, ScheduleGPipe{.microbatches = 5}},
                                   {{}, Schedule1F1B{.microbatches = 5}},
                                   {{}, ScheduleInterleaved{.microbatches = 5, .chunks = 2}},
                                   {{.workers = 3, .stages = 3}, ScheduleZeroBubbleH1{.microbatches = 5}},
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
  const auto run = [&](const Strategy& strategy, int64_t epochs, const std::filesystem::path& folder, bool sharded) {
    const auto scope = strategy.scope();
    Sequential model = made(layers(), adam());
    (void)model.fit(
        batches(),
        {.epochs = epochs,
         .callbacks = {BackupAndRestore({.directory = folder, .delete_checkpoint = false, .sharded = sharded})},
         .verbose = Verbose::kSilent});
    return model.weights();
  };
  const testing::TemporaryFolder folder;
  const OneDeviceStrategy one("/CPU:0");
  const NamedTensors wanted = run(one, 2, folder.path() / "wanted", false);
  run(one, 1, folder.path() / "whole", false);
  for (const bool sharded : {false, true}) {
    SCOPED_TRACE(sharded);
    const auto parts = folder.path() / (sharded ? "sharded" : "parts");
    with_stages(
        {}, Schedule1F1B{.microbatches = 5},
        [&](const MultiWorkerPipelineStrategy& strategy) {
          run(strategy, 1, parts, sharded);
          expect_same(run(strategy, 2, parts, sharded), wanted);  // with its own state, where it was left
          if (!sharded) expect_same(run(strategy, 2, folder.path() / "whole", false), wanted);
        },
        cut_of(2));
    expect_same(run(one, 2, parts, false), wanted);
  }
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

// Own loops, with LibTorch's modules: two values from a stage to the next, a weight of the first stage that the last
// one uses, a batch norm, and a layer that does not learn.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    embedding = register_parameter("embedding", torch::randn({6, 8}, torch::kDouble) * 0.3);
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    middle = register_module("middle", torch::nn::Linear(8, 8));
    frozen = register_parameter("frozen", torch::randn({8, 8}, torch::kDouble) * 0.3, /*requires_grad=*/false);
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    std::vector<torch::Tensor> both = next_stage({torch::tanh(x.matmul(embedding)), x.matmul(embedding)});
    torch::Tensor y = torch::tanh(middle->forward(norm->forward(both[0]))) + both[1];
    y = stage_place(y.matmul(frozen), "head");
    return y.matmul(embedding.t());
  }
  torch::Tensor embedding, frozen;
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear middle{nullptr};
};
TORCH_MODULE(Net);

struct LinearsImpl : torch::nn::Module {
  LinearsImpl() {
    first = register_parameter("first", torch::full({6, 3}, 0.5, torch::kDouble));
    second = register_parameter("second", torch::full({3, 2}, 0.5, torch::kDouble));
  }
  torch::Tensor forward(const torch::Tensor& x) { return next_stage(x.matmul(first)).matmul(second); }
  torch::Tensor first, second;
};
TORCH_MODULE(Linears);

struct OwnLoop {
  std::vector<double> losses;
  std::vector<torch::Tensor> outputs;
  NamedTensors state;
};

OwnLoop own_loop(const Strategy& strategy) {
  const auto net = strategy.mirror([] { return Net(); });
  NamedTensors begin;
  for (const auto& [name, value] : net.state()) {
    const at::Generator own = mesh_runs::generator(name.size());
    begin.emplace_back(name, value.is_floating_point() ? torch::rand(value.sizes(), own, torch::kDouble) : value);
  }
  net.load_state(begin);
  const MirroredOptimizer rule = strategy.optimizer(net, Adam({.learning_rate = 0.02}));
  OwnLoop result;
  for (int step = 0; step < 6; ++step) {
    const at::Generator own = mesh_runs::generator(static_cast<uint64_t>(100 + step));
    const torch::Tensor x = torch::randn({step % 3 == 2 ? 7 : 12, 6}, own, torch::kDouble);
    const auto results = strategy.run(
        [&](Replica& replica, const Example& part) {
          const torch::Tensor y = net[replica]->forward(part.x);
          const torch::Tensor loss = replica.global_mean((y - part.x).square());
          rule[replica].minimize(loss);
          return std::pair(loss, y);
        },
        PerReplica<Example>({Example{.x = x}}));
    result.losses.push_back(results[0].first.item<double>());
    result.outputs.push_back(results[0].second);
  }
  net.synchronize_buffers();
  for (const auto& [name, value] : net.state()) result.state.emplace_back(name, value.to(torch::kDouble));
  return result;
}

TEST(PipelineOverWorkers, AnOwnLoopHasTheSameResultsOnAllWorkers) {
  const OwnLoop wanted = own_loop(
      PipelineStrategy({.devices = cpu_devices(3), .schedule = Schedule1F1B{.microbatches = 3}, .cut = {"head"}}));
  with_stages({.workers = 3, .stages = 3}, Schedule1F1B{.microbatches = 3},
              [&](const MultiWorkerPipelineStrategy& strategy) {
                const OwnLoop got = own_loop(strategy);
                for (std::size_t step = 0; step < wanted.losses.size(); ++step) {
                  EXPECT_NEAR(got.losses[step], wanted.losses[step], kClose);
                  EXPECT_LT(gap_between(got.outputs[step], wanted.outputs[step]), kClose);
                }
                expect_same(got.state, wanted.state);
              },
              {"head"});
}

// A weight that both stages use, and gradients of which factors of low rank travel between the lines.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    middle = register_parameter("middle", torch::cos(torch::arange(256.0, torch::kDouble)).view({16, 16}));
    embedding = register_parameter("embedding", torch::sin(torch::arange(192.0, torch::kDouble)).view({12, 16}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = next_stage(torch::tanh(x.matmul(embedding) * 0.2));
    return torch::tanh(y.matmul(middle) * 0.2).matmul(embedding.t());
  }
  torch::Tensor embedding, middle;
};
TORCH_MODULE(Tied);

struct TiedTraining {
  explicit TiedTraining(const Strategy& own)
      : strategy(own), net(own.mirror([] { return Tied(); })), rule(own.optimizer(net, SGD({.learning_rate = 0.05}))) {}

  // Replicas in sync from `first` on get examples of their own.
  void steps(int from, int to, int first) const {
    for (int step = from; step < to; ++step) {
      std::vector<Example> shares;
      for (int i = 0; i < strategy.num_local_replicas(); ++i) {
        const at::Generator own = mesh_runs::generator(static_cast<uint64_t>(100 * step + first + i));
        shares.push_back({.x = torch::randn({4, 12}, own, torch::kDouble)});
      }
      strategy.run(
          [&](Replica& replica, const Example& part) {
            const torch::Tensor y = net[replica]->forward(part.x);
            rule[replica].minimize((y - part.x).square().sum() / 96.0);
          },
          PerReplica<Example>(std::move(shares)));
    }
  }

  Strategy strategy;
  Mirrored<Tied> net;
  MirroredOptimizer rule;
};

TEST(PipelineOverWorkers, FactorsOfLowRankAreThoseOfReplicasAndGoOn) {
  ExchangeOptions exchange{.gradient_compression = "power_sgd",
                           .power_sgd = {.matrix_approximation_rank = 2, .start_power_sgd_iter = 1},
                           .threads_per_replica = 1};
  const PipelineOptions options{
      .mesh = mesh_of({.workers = 4, .batch = 2}), .schedule = Schedule1F1B{.microbatches = 2}, .exchange = exchange};
  exchange.cross_device_ops = "reduction_to_one_device";
  const TiedTraining replicas(MirroredStrategy({.devices = cpu_devices(2), .exchange = exchange}));
  replicas.steps(0, 6, 0);
  std::vector<torch::Tensor> tied(4);
  with_stages(
      4, [&](int /*rank*/) { return options; },
      [&](const MultiWorkerPipelineStrategy& strategy) {
        const auto rank = static_cast<std::size_t>(strategy.worker_rank());
        const int line = Access::core(strategy)->pipelines()[rank];
        const TiedTraining whole(strategy), second(strategy);
        whole.steps(0, 3, line);
        second.net.load_state(whole.net.state());
        second.rule.load_state(whole.rule.state());
        second.rule.load_accumulated(whole.rule.accumulated());
        whole.steps(3, 6, line);
        second.steps(3, 6, line);
        expect_same(whole.net.state(), replicas.net.state());
        for (const auto& [name, value] : whole.net.state()) {
          for (const auto& [other, again] : second.net.state())
            EXPECT_TRUE(name != other || torch::equal(value, again));
        }
        tied[rank] = whole.net[0]->embedding.detach().clone();
      });
  for (const torch::Tensor& each : tied) EXPECT_TRUE(torch::equal(each, tied[0]));
}

// A batch with one example is one microbatch, whose results all workers have, too.
TEST(PipelineOverWorkers, ASingleMicrobatchHasItsResultsOnAllWorkers) {
  with_stages({}, Schedule1F1B{.microbatches = 3}, [](const MultiWorkerPipelineStrategy& strategy) {
    const auto net = strategy.mirror([] { return Linears(); });
    const torch::Tensor x = torch::ones({1, 6}, torch::kDouble);
    const auto results = strategy.run(
        [&](Replica& replica, const Example& part) {
          const torch::NoGradGuard no_grad;
          const torch::Tensor y = net[replica]->forward(part.x);
          return std::tuple(NamedTensors{{"y", y}, {"none", torch::Tensor()}}, y.sum(), y.sum({0}), part.size());
        },
        PerReplica<Example>({Example{.x = x}}));
    const auto& [named, sum, columns, rows] = results[0];
    const torch::Tensor wanted = torch::full({1, 2}, 6 * 0.5 * 3 * 0.5, torch::kDouble);
    EXPECT_LT(gap_between(named[0].second, wanted), kClose);
    EXPECT_FALSE(named[1].second.defined());
    EXPECT_NEAR(sum.item<double>(), wanted.sum().item<double>(), kClose);
    EXPECT_LT(gap_between(columns, wanted[0]), kClose);
    EXPECT_EQ(rows, 1);
    EXPECT_LT(gap_between(strategy.reduce(ReduceOp::kSum, PerReplica<torch::Tensor>({columns})), wanted[0]), kClose);
  });
}

template <typename Kind>
void expect_refused(const std::string& part, const std::function<void()>& fn) {
  const std::string message = testing::error_of<Kind>(fn);
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(PipelineOverWorkers, WhatCannotBeIsNamed) {
  const auto none = [](const MultiWorkerPipelineStrategy& /*strategy*/) {};
  expect_refused<InvalidArgument>("mesh is not set", [] { MultiWorkerPipelineStrategy({.devices = cpu_devices(2)}); });
  expect_refused<InvalidArgument>("the workers differ in pipeline: worker 0 has \"1f1b of 3", [&] {
    with_stages(
        2,
        [](int rank) {
          return PipelineOptions{.mesh = mesh_of({}), .schedule = Schedule1F1B{.microbatches = 3 + rank}};
        },
        none);
  });
  expect_refused<InvalidArgument>("the workers differ in exchange: worker 0 has \"1 packs", [&] {
    with_stages(
        2, [](int rank) { return PipelineOptions{.mesh = mesh_of({}), .exchange = {.num_packs = 1 + rank}}; }, none);
  });
  expect_refused<Unimplemented>("global_mean: a pipeline beside other workers does not ask", [&] {
    with_stages({.workers = 4, .batch = 2}, Schedule1F1B{.microbatches = 2}, [](const auto& strategy) {
      strategy.run([](Replica& replica, const Example& part) { return replica.global_mean(part.x); },
                   PerReplica<Example>({Example{.x = torch::ones({4, 2})}}));
    });
  });
  expect_refused<InvalidArgument>("has other stages of the mesh", [&] {
    with_stages({.workers = 2, .devices = 3, .batch = 2, .stages = 3}, Schedule1F1B{}, none);
  });
}

// A batch norm that the stages of two workers use.
struct NormTwiceImpl : torch::nn::Module {
  NormTwiceImpl() : norm(register_module("norm", torch::nn::BatchNorm1d(6))) { to(torch::kDouble); }
  torch::Tensor forward(const torch::Tensor& x) { return norm(next_stage(norm(x))); }
  torch::nn::BatchNorm1d norm;
};
TORCH_MODULE(NormTwice);

TEST(PipelineOverWorkers, ABatchNormOfTwoStagesIsNamed) {
  std::atomic<int> named = 0;
  with_stages({}, Schedule1F1B{.microbatches = 3}, [&](const MultiWorkerPipelineStrategy& strategy) {
    const auto net = strategy.mirror([] { return NormTwice(); });
    const MirroredOptimizer rule = strategy.optimizer(net, SGD());
    const std::string error = testing::error_of<FailedPrecondition>([&] {
      strategy.run(
          [&](Replica& replica, const Example& part) {
            rule[replica].minimize(replica.global_mean(net[replica]->forward(part.x).square()));
          },
          PerReplica<Example>({Example{.x = torch::ones({6, 6}, torch::kDouble)}}));
    });
    if (error.find("[pipeline] norm.") != std::string::npos) ++named;
  });
  EXPECT_EQ(named, 2);
}

// The first worker cannot know a loss that the last one computes; the last one hears of it.
TEST(PipelineOverWorkers, AValueOfAnotherWorkerIsNamed) {
  expect_refused<Unimplemented>("_local_scalar_dense", [] {
    with_stages({}, Schedule1F1B{.microbatches = 3}, [](const MultiWorkerPipelineStrategy& strategy) {
      const auto net = strategy.mirror([] { return Net(); });
      strategy.run(
          [&](Replica& replica, const Example& part) {
            const torch::NoGradGuard no_grad;
            return net[replica]->forward(part.x).sum().item<double>();
          },
          PerReplica<Example>({Example{.x = torch::ones({6, 6}, torch::kDouble)}}));
    });
  });
}

// A part of the loss that layers of several stages add up in place is lost on the way, and so it is refused.
TEST(PipelineOverWorkers, ASumInPlaceOverStagesIsNamed) {
  std::string message;
  with_stages({}, Schedule1F1B{.microbatches = 3}, [&](const MultiWorkerPipelineStrategy& strategy) {
    const auto net = strategy.mirror([] { return Net(); });
    const MirroredOptimizer rule = strategy.optimizer(net, SGD());
    const auto step = [&](Replica& replica, const Example& part) {
      torch::Tensor more = torch::zeros({}, torch::kDouble);
      const torch::Tensor x = part.x.matmul(net[replica]->embedding);
      more += x.square().mean();
      const torch::Tensor y = net[replica]->middle->forward(next_stage(x));
      rule[replica].minimize(replica.global_mean(y.square()) + more);
    };
    const auto run = [&] {
      strategy.run(step, PerReplica<Example>({Example{.x = torch::ones({6, 6}, torch::kDouble)}}));
    };
    const bool is_last = strategy.worker_rank() == 1;
    is_last ? message = testing::error_of<FailedPrecondition>(run) : testing::error_of<Unavailable>(run);
  });
  EXPECT_NE(message.find("was given a tensor of [] that another process of the pipeline has"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace cohort::equivalence::pipeline_workers_test
