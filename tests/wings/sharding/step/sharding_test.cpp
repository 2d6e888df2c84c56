// Replicas that share the states of the optimizer: what they hold, what their checkpoints are, what is refused.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/optimizer.h"
#include "cohort/strategy.h"
#include "tests/support/errors.h"
#include "tests/support/workers.h"

namespace cohort::sharding_test {
namespace {

using testing::expect_error;
using testing::with_workers;
using testing::WorkersOptions;

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// 40,000 parameters whose sizes nothing divides.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(127, 211));
    second = register_module("second", torch::nn::Linear(211, 61));
    last = register_module("last", torch::nn::Linear(61, 3));
  }
  torch::Tensor forward(const torch::Tensor& x) { return last(torch::tanh(second(torch::tanh(first(x))))); }
  torch::nn::Linear first{nullptr}, second{nullptr}, last{nullptr};
};
TORCH_MODULE(Net);

// A training of one strategy.
struct Training {
  Training(const Strategy& own, const Optimizer& rule, torch::ScalarType dtype = torch::kFloat)
      : strategy(own),
        net(own.mirror([&] {
          Net made;
          const torch::NoGradGuard no_grad;
          for (torch::Tensor& p : made->parameters()) p.copy_(torch::sin(torch::arange(p.numel())).view_as(p) * 0.1);
          made->to(dtype);
          return made;
        })),
        optimizer(own.optimizer(net, rule)) {}

  // Steps with gradients that differ from replica to replica and from step to step.
  void steps(int first, int last) {
    for (int step = first; step < last; ++step) {
      strategy.run([&](Replica& replica) {
        const torch::Tensor x = torch::cos(torch::arange(127 * 2) * (1.0 + step + 0.1 * replica.id())).view({2, 127});
        const torch::Tensor dense = x.to(net[replica]->parameters()[0].dtype());
        optimizer[replica].minimize(replica.global_mean(net[replica]->forward(dense).square().sum(1)));
      });
    }
  }

  // Returns copies of the weights, which go on to change.
  NamedTensors weights() const {
    NamedTensors list = net.state();
    for (auto& [name, tensor] : list) tensor = tensor.clone();
    return list;
  }

  Strategy strategy;
  Mirrored<Net> net;
  MirroredOptimizer optimizer;
};

// In stage 3 each layer is a unit, which is a message.
Strategy mirrored(int replicas, int stage, int packs = 1, const std::string& ops = "reduction_to_one_device") {
  const ShardingOptions units{.stage = stage, .min_unit_bytes = 0};
  return MirroredStrategy({.devices = cpu_devices(replicas),
                           .exchange = {.cross_device_ops = ops, .num_packs = stage == 3 ? 1 : packs},
                           .sharding = stage == 3 ? units : ShardingOptions{.stage = stage}});
}

void expect_close(const NamedTensors& got, const NamedTensors& wanted, double tolerance) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].first, wanted[i].first);
    EXPECT_TRUE(torch::allclose(got[i].second, wanted[i].second, 0, tolerance)) << got[i].first;
  }
}

// 4 Psi of parameters and of gradients, 8 Psi of Adam's slots, divided by the replicas.
TEST(Sharding, TheSlotsAreDividedAsTheFormulaSays) {
  for (const int replicas : {1, 2, 3, 4}) {
    Training training(mirrored(replicas, 1, replicas == 1 ? 1 : 3), Adam());
    training.steps(0, 1);
    const double psi = 127 * 211 + 211 + 211 * 61 + 61 + 61 * 3 + 3;
    const StateBytes bytes = training.optimizer.state_bytes();
    EXPECT_NEAR(static_cast<double>(bytes.parameters), 4 * psi, 0.05 * 4 * psi);
    EXPECT_NEAR(static_cast<double>(bytes.slots), 8 * psi / replicas, 0.05 * 8 * psi / replicas) << replicas;
  }
  Training whole(mirrored(4, 0), Adam());
  EXPECT_NEAR(static_cast<double>(whole.optimizer.state_bytes().slots), 8 * 40261, 0.05 * 8 * 40261);
  Training in_place(mirrored(4, 1, 1, "auto"), Adam());
  EXPECT_NEAR(static_cast<double>(in_place.optimizer.state_bytes().slots), 2 * 40261, 0.05 * 2 * 40261);
}

// Gradients are given up message by message: beside them there is a message, and the slices that are theirs.
TEST(Sharding, GradientsAreNotCopiedAsAWhole) {
  Training training(MirroredStrategy({.devices = cpu_devices(4),
                                      .exchange = {.cross_device_ops = "reduction_to_one_device", .bytes_per_pack = 1},
                                      .sharding = {.stage = 1}}),
                    SGD());
  training.steps(0, 1);
  const double psi = 4 * 40261;
  // The largest message is that of the first weight, two thirds of all, which comes last, when the others are gone.
  EXPECT_LT(static_cast<double>(training.optimizer.state_bytes().gradients), 1.7 * psi);
  EXPECT_GT(static_cast<double>(training.optimizer.state_bytes().gradients), 1.0 * psi);
}

// In stage 2 they leave while backward runs: there are never more than the shard and two messages.
TEST(Sharding, GradientsThatHaveLeftAreFreedDuringBackward) {
  for (const int replicas : {2, 4}) {
    Training training(
        MirroredStrategy(
            {.devices = cpu_devices(replicas), .exchange = {.bytes_per_pack = 1}, .sharding = {.stage = 2}}),
        Adam());
    EXPECT_TRUE(training.optimizer.exchange_timeline().messages.empty());
    training.steps(0, 2);
    const StateBytes bytes = training.optimizer.state_bytes();
    const double psi = 40261;
    const double weight = 4 * 127 * 211;  // the first layer's, two thirds of all
    EXPECT_NEAR(static_cast<double>(bytes.slots), 8 * psi / replicas, 0.05 * 8 * psi / replicas);
    EXPECT_LT(static_cast<double>(bytes.gradients), 4 * psi / replicas + (2 + 1.0 / replicas) * weight + 1000);
    EXPECT_GT(static_cast<double>(bytes.gradients), 4 * psi / replicas + weight);
    const ExchangeTimeline timeline = training.optimizer.exchange_timeline();
    ASSERT_EQ(timeline.messages.size(), 6);
    EXPECT_LT(timeline.messages.front().begin, timeline.backward);
    EXPECT_LE(timeline.messages.back().end, timeline.backward);
    for (const auto& message : timeline.messages) EXPECT_GE(message.begin, message.ready);
  }
}

// Parameters that the loss does not reach, and apply_gradients() with gradients() of one's own.
TEST(Sharding, Stages2And3TakeWhateverGradientsThereAre) {
  NamedTensors expected;
  for (const int stage : {0, 2, 3}) {
    Training training(mirrored(3, stage, 0), Adam({.gradient = {.global_clipnorm = 0.5}}), torch::kDouble);
    const auto loss_of = [&](Replica& replica) {
      const torch::Tensor x = torch::full({2, 127}, 0.1 * (replica.id() + 1), torch::kDouble);
      return replica.global_mean(training.net[replica]->second(training.net[replica]->first(x)).sum(1));
    };
    training.strategy.run([&](Replica& replica) { training.optimizer[replica].minimize(loss_of(replica)); });
    training.strategy.run([&](Replica& replica) {
      loss_of(replica).backward();  // is added to, and not watched
      training.optimizer[replica].minimize(loss_of(replica));
    });
    training.strategy.run([&](Replica& replica) {
      std::vector<torch::Tensor> gradients = training.optimizer[replica].gradients(loss_of(replica));
      EXPECT_TRUE(gradients.front().defined());
      EXPECT_FALSE(gradients.back().defined());
      gradients[0] = gradients[0].t().contiguous().t();
      training.optimizer[replica].apply_gradients(std::move(gradients));
    });
    if (stage == 0) expected = training.weights();
    if (stage > 0) expect_close(training.weights(), expected, 1e-12);
  }
}

// Within an accumulation any stage goes on with what any other has saved, with a scale of the loss.
TEST(Sharding, SumsOfAccumulatedCallsGoOnInAnyStage) {
  const auto rule = LossScaleOptimizer(Adam({.gradient = {.gradient_accumulation_steps = 3}, .ema = {.use_ema = true}}),
                                       {.initial_scale = 8.0});
  Training whole(mirrored(3, 0), rule, torch::kDouble);
  whole.steps(0, 7);
  for (const auto& [before, after] : {std::pair(2, 2), std::pair(2, 0), std::pair(0, 2), std::pair(1, 2),
                                      std::pair(3, 3), std::pair(0, 3), std::pair(3, 2)}) {
    SCOPED_TRACE(c10::str("stage ", before, ", then ", after));
    Training first(mirrored(3, before, 3), rule, torch::kDouble);
    first.steps(0, 5);
    Training second(mirrored(3, after, 3), rule, torch::kDouble);
    second.net.load_state(first.weights());
    second.optimizer.load_state(first.optimizer.state());
    second.optimizer.load_accumulated(first.optimizer.accumulated());
    EXPECT_EQ(second.optimizer.accumulated()[0].item<int64_t>(), 2);
    // Saved again before anything happens they are the same.
    const std::vector<torch::Tensor> again = second.optimizer.accumulated();
    const std::vector<torch::Tensor> saved = first.optimizer.accumulated();
    ASSERT_EQ(again.size(), saved.size());
    for (std::size_t i = 0; i < saved.size(); ++i) EXPECT_TRUE(torch::equal(again[i], saved[i])) << i;
    second.steps(5, 7);
    expect_close(second.net.state(), whole.net.state(), 1e-9);
    expect_close(second.optimizer.state(), whole.optimizer.state(), 1e-9);
    if (before != after) continue;
    first.steps(5, 7);  // without the interruption: the same bits
    expect_close(second.net.state(), first.net.state(), 0.0);
  }
}

// A replica that fails within its backward pass, when messages have left, names itself; the others end, and the next
// step is as if nothing had been.
TEST(Sharding, ABackwardThatFailsLeavesNothingBehind) {
  for (const int stage : {2, 3}) {
    Training whole(mirrored(3, 0), SGD({.momentum = 0.9}), torch::kDouble);
    Training training(mirrored(3, stage, 0), SGD({.momentum = 0.9}), torch::kDouble);
    training.steps(0, 1);
    expect_error<std::runtime_error>(
        [&] {
          training.strategy.run([&](Replica& replica) {
            const torch::Tensor hidden =
                torch::tanh(training.net[replica]->first(torch::ones({2, 127}, torch::kDouble)));
            hidden.register_hook([&replica](const torch::Tensor& gradient) -> torch::Tensor {
              if (replica.id() == 1) throw std::runtime_error("replica 1 has had enough");
              return gradient;
            });
            const torch::Tensor out = training.net[replica]->last(torch::tanh(training.net[replica]->second(hidden)));
            training.optimizer[replica].minimize(replica.global_mean(out.sum(1)));
          });
        },
        "replica 1 has had enough");
    training.steps(1, 3);
    whole.steps(0, 3);
    expect_close(training.net.state(), whole.net.state(), 1e-12);
  }
}

class ShardedCheckpoint : public ::testing::TestWithParam<const char*> {};

// What any strategy saves, any other goes on with.
TEST_P(ShardedCheckpoint, GoesOnUnderAnyOther) {
  const Optimizer rule(GetParam());
  const auto made = [&](int replicas, int stage, int packs) {
    return Training(mirrored(replicas, stage, packs), rule, torch::kDouble);
  };
  Training whole = made(3, 0, 1);
  whole.steps(0, 3);
  const NamedTensors net = whole.weights();
  const NamedTensors state = whole.optimizer.state();
  whole.steps(3, 6);
  for (const auto& [stage, packs] :
       {std::pair(1, 1), std::pair(1, 0), std::pair(1, 3), std::pair(2, 0), std::pair(2, 3), std::pair(3, 1)}) {
    Training sharded = made(3, stage, packs);
    sharded.net.load_state(net);
    sharded.optimizer.load_state(state);
    expect_close(sharded.optimizer.state(), state, 0.0);
    sharded.steps(3, 6);
    expect_close(sharded.optimizer.state(), whole.optimizer.state(), 1e-9);
    expect_close(sharded.net.state(), whole.net.state(), 1e-9);
  }
  for (const int stage : {1, 2, 3}) {
    Training sharded = made(3, stage, 0);
    sharded.steps(0, 3);
    Training back = made(3, 0, 1);
    back.net.load_state(sharded.net.state());
    back.optimizer.load_state(sharded.optimizer.state());
    back.steps(3, 6);
    expect_close(back.net.state(), whole.net.state(), 1e-9);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ShardedCheckpoint, ::testing::Values("adam", "lamb", "adafactor"),
                         [](const auto& info) { return std::string(info.param); });

// The steps before are on one number of workers, those after on another; each worker saves the same.
TEST(Sharding, WorkersGoOnWithWhatOthersSaved) {
  NamedTensors net, state, end, end_state;
  const auto rule = Adam({.learning_rate = 0.01, .ema = {.use_ema = true}});
  {
    Training alone(mirrored(2, 0), rule, torch::kDouble);
    alone.steps(0, 2);
    net = alone.weights();
    state = alone.optimizer.state();
    alone.steps(2, 4);
    alone.optimizer.finalize_variable_values();
    end = alone.weights();
    end_state = alone.optimizer.state();
  }
  WorkersOptions group{.workers = 2};
  group.sharding.stage = 1;
  std::mutex mutex;
  with_workers(group, [&](const MultiWorkerMirroredStrategy& strategy) {
    Training training(strategy, rule, torch::kDouble);
    training.net.load_state(net);
    training.optimizer.load_state(state);
    training.steps(2, 4);
    training.optimizer.finalize_variable_values();
    const NamedTensors own = training.net.state();
    const NamedTensors own_state = training.optimizer.state();
    const StateBytes bytes = training.optimizer.state_bytes();
    const std::lock_guard lock(mutex);
    expect_close(own, end, 1e-9);
    expect_close(own_state, end_state, 1e-9);
    EXPECT_NEAR(static_cast<double>(bytes.slots), 24 * 40261 / 2, 0.05 * 24 * 40261 / 2);
  });
}

// The float16 scale: one replica's overflow leaves the step out on all.
TEST(Sharding, AStepThatIsNotFiniteIsLeftOutByAll) {
  for (const int stage : {1, 2, 3}) {
    Training training(mirrored(3, stage, 3), LossScaleOptimizer(SGD({.momentum = 0.9}), {.initial_scale = 8.0}));
    training.steps(0, 1);
    const NamedTensors before = training.optimizer.state();
    const torch::Tensor weight = training.net.state().front().second.clone();
    training.strategy.run([&](Replica& replica) {
      std::vector<torch::Tensor> gradients;
      for (const torch::Tensor& p : training.net[replica]->parameters()) gradients.push_back(torch::ones_like(p));
      if (replica.id() == 1) gradients.back().index_put_({0}, std::numeric_limits<float>::infinity());
      training.optimizer[replica].apply_gradients(gradients);
    });
    EXPECT_EQ(training.optimizer.iterations(), 1);
    EXPECT_EQ(training.optimizer.loss_scale(), 4.0);
    EXPECT_TRUE(torch::equal(training.net.state().front().second, weight));
    for (const auto& [name, slot] : training.optimizer.state()) {
      for (const auto& [other, saved] : before) {
        if (name != other || !name.ends_with("momentum")) continue;
        EXPECT_TRUE(torch::equal(slot, saved)) << name;
      }
    }
  }
}

// Half parameters have float32 slots, and a rule that needs norms of them gets whole ones.
TEST(Sharding, HalfParametersAreUpdatedInFloat32) {
  for (const char* name : {"adam", "lamb", "lars", "adafactor"}) {
    Training whole(mirrored(3, 0), name, torch::kBFloat16);
    whole.steps(0, 3);
    for (const int stage : {1, 2, 3}) {
      Training sharded(mirrored(3, stage), name, torch::kBFloat16);
      sharded.steps(0, 3);
      expect_close(sharded.net.state(), whole.net.state(), 0.0);
      expect_close(sharded.optimizer.state(), whole.optimizer.state(), 0.0);
    }
  }
}

TEST(Sharding, GradientsThatAreSumsAlreadyAreTakenAsTheyAre) {
  Training whole(mirrored(3, 0), SGD({.momentum = 0.9}));
  Training sharded(mirrored(3, 1, 3), SGD({.momentum = 0.9}));
  Training further(mirrored(3, 2, 3), SGD({.momentum = 0.9}));
  Training furthest(mirrored(3, 3), SGD({.momentum = 0.9}));
  for (Training* each : {&whole, &sharded, &further, &furthest}) {
    each->strategy.run([&](Replica& replica) {
      std::vector<torch::Tensor> gradients;
      for (const torch::Tensor& p : each->net[replica]->parameters()) gradients.push_back(torch::cos(p));
      gradients[1] = torch::Tensor();
      each->optimizer[replica].apply_gradients(gradients, /*reduced=*/true);
    });
  }
  expect_close(sharded.net.state(), whole.net.state(), 0.0);
  expect_close(further.net.state(), whole.net.state(), 0.0);
  expect_close(furthest.net.state(), whole.net.state(), 0.0);
}

TEST(Sharding, StatesAreSharedAlongOneAxisOfAMesh) {
  const MirroredStrategy strategy(
      {.sharding = {.stage = 1, .axis = "batch"}, .mesh = DeviceMesh({2, 2}, {"replica", "batch"}, cpu_devices(4))});
  EXPECT_EQ(strategy.num_replicas_in_sync(), 4);
  EXPECT_EQ(strategy.topology().to_string(), "replica 2, batch 2; 4 replicas in 1 process");
  // Messages along both: the slots are halved, not quartered.
  Training by_messages(MirroredStrategy({.exchange = {.cross_device_ops = "reduction_to_one_device"},
                                         .sharding = {.stage = 1},
                                         .mesh = DeviceMesh({2, 2}, {"replica", "batch"}, cpu_devices(4))}),
                       Adam());
  EXPECT_NEAR(static_cast<double>(by_messages.optimizer.state_bytes().slots), 4 * 40261, 0.05 * 4 * 40261);
}

TEST(Sharding, WrongOptionsAreNamed) {
  const auto refuse = [](const ShardingOptions& sharding, const std::string& words) {
    expect_error<InvalidArgument>([&] { MirroredStrategy({.devices = cpu_devices(2), .sharding = sharding}); }, words);
  };
  refuse({.stage = -1}, "sharding.stage is -1, wanted 0 (none) to");
  refuse({.stage = 4}, "sharding.stage is 4, wanted 0 (none) to 3");
  refuse({.stage = 2, .reshard_after_forward = false}, "sharding.reshard_after_forward is false and ");
  refuse({.stage = 2, .min_unit_bytes = 5},
         "sharding.min_unit_bytes 5, which are for stage 3, and sharding.stage is 2");
  refuse({.stage = 3, .min_unit_bytes = -1}, "sharding.min_unit_bytes is -1, wanted 0");
  expect_error<InvalidArgument>(
      [] { MirroredStrategy({.devices = cpu_devices(2), .exchange = {.num_packs = 3}, .sharding = {.stage = 3}}); },
      "num_packs is 3 and bytes_per_pack 0, but the messages of sharding.stage 3 are its units");
  refuse({.stage = 0, .offload_states = true},
         "sharding.offload_states is true with stage 0, which has no parts of states; wanted stage 1 to 3");
  refuse({.stage = 0, .axis = "rows"}, "sharding.axis is \"rows\" with stage 0");
  expect_error<NotFound>(
      [] { MirroredStrategy({.devices = cpu_devices(2), .sharding = {.stage = 1, .axis = "rows"}}); },
      "there is no axis \"rows\", only batch");
  const DeviceMesh model({2, 2}, {"batch", "model"}, cpu_devices(4));
  expect_error<InvalidArgument>([&] { MirroredStrategy({.mesh = model}); },
                                "the axis \"model\" of the mesh (batch 2 x model 2) does not carry the batch");
  const DeviceMesh mesh({2, 2}, {"replica", "batch"}, cpu_devices(4));
  expect_error<InvalidArgument>([&] { MirroredStrategy({.devices = cpu_devices(4), .mesh = mesh}); },
                                "4 devices came beside a mesh (replica 2 x batch 2)");
}

// Before it waits for anybody.
TEST(Sharding, AWorkerWithoutADeviceInTheMeshIsNamed) {
  const auto resolver = std::make_shared<SimpleResolver>(
      SimpleResolverOptions{.cluster = testing::loopback_workers(2), .task = TaskId{"worker", 1}});
  const DeviceMesh mesh({2}, {"batch"}, {"/job:worker/task:0/CPU:0", "/job:worker/task:2/CPU:0"});
  expect_error<InvalidArgument>([&] { MultiWorkerMirroredStrategy({.resolver = resolver, .mesh = mesh}); },
                                "the mesh (batch 2) has no device of ");
  const DeviceMesh model({2}, {"model"}, {"/job:worker/task:0/CPU:0", "/job:worker/task:1/CPU:0"});
  expect_error<InvalidArgument>([&] { MultiWorkerMirroredStrategy({.resolver = resolver, .mesh = model}); },
                                "the axis \"model\" of the mesh (model 2) does not carry the batch");
}

}  // namespace
}  // namespace cohort::sharding_test
