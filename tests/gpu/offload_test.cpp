// Replicas on cards whose states lie in the host's memory (ShardingOptions::offload_states): they take the steps of one
// device, no state lies on a card, and their checkpoints are those of others.
#include <torch/torch.h>

#include <limits>
#include <map>
#include <set>

#include "cohort/cohort.h"
#include "step/step.h"
#include "tests/equivalence/runs.h"
#include "tests/gpu/cards.h"
#include "tests/gpu/programs.h"
#include "tests/support/files.h"
#include "tests/support/workers.h"

namespace cohort::offload_test {
namespace {

using namespace gpu;

using cohort::testing::TemporaryFolder;
using Devices = std::vector<std::string>;

// Each layer is a unit in stage 3.
ShardingOptions sharding_of(int stage, bool offloads = true) {
  ShardingOptions sharding{.stage = stage, .offload_states = offloads};
  if (stage == 3) sharding.min_unit_bytes = 0;
  return sharding;
}

Strategy on(const Devices& devices, int stage, bool offloads = true) {
  return MirroredStrategy({.devices = devices, .sharding = sharding_of(stage, offloads)});
}

torch::nn::Sequential small_net() {
  return torch::nn::Sequential(torch::nn::Linear(equivalence::kFeatures, 31), torch::nn::Tanh(),
                               torch::nn::Linear(31, equivalence::kClasses));
}

// ---- The steps.

// Returns the weights of one device on the CPU, in float64.
const torch::Tensor& alone(const equivalence::Rule& rule) {
  static std::map<std::string, torch::Tensor> known;
  torch::Tensor& weights = known[rule.name];
  if (!weights.defined()) {
    weights = equivalence::weights_after(OneDeviceStrategy("/CPU:0"), rule.make(), {}, small_net);
  }
  return weights;
}

// Rules that take runs of elements, norms of parameters and whole parameters, slots that do not begin as zeros, and
// what surrounds rules. The kernels of the others are the CPU's, too.
std::vector<equivalence::Rule> rules_of_each_kind() {
  static const std::set<std::string> kNames{"adam", "ftrl", "lamb", "adafactor", "clipped", "clipnorm", "averaged"};
  std::vector<equivalence::Rule> rules = equivalence::rules();
  std::erase_if(rules, [](const equivalence::Rule& rule) { return !kNames.contains(rule.name); });
  return rules;
}

TEST(Offloaded, RulesTakeTheStepsOfOneDevice) {
  COHORT_NEEDS_PLACES(2);
  for (const int stage : {1, 2, 3}) {
    for (const equivalence::Rule& rule : rules_of_each_kind()) {
      const torch::Tensor together = equivalence::weights_after(on(on_cards(2), stage), rule.make(), {}, small_net);
      EXPECT_LT(equivalence::distance(alone(rule), together), 1e-9) << rule.name << ", stage " << stage;
    }
  }
}

TEST(Offloaded, OneCardAndPartsOfOneTakeTheStepsOfOneDevice) {
  COHORT_NEEDS_CARDS(1);
  const equivalence::Rule clipped = equivalence::surrounded_rules().front();
  for (const auto& [devices, stage] : {std::pair(on_cards(1), 1), std::pair(on_cards(1), 3),
                                       std::pair(parts_of_one_card(), 2), std::pair(parts_of_one_card(), 3)}) {
    const torch::Tensor together = equivalence::weights_after(on(devices, stage), clipped.make(), {}, small_net);
    EXPECT_LT(equivalence::distance(alone(clipped), together), 1e-9) << "stage " << stage << ", " << devices.size();
  }
}

// Trains with a batch in two halves, and returns the weights.
torch::Tensor trained_by_workers(const Strategy& strategy) {
  const auto scope = strategy.scope();
  auto net = strategy.mirror([] {
    torch::nn::Sequential made = small_net();
    made->to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& each : made->parameters()) each.copy_(torch::cos(torch::arange(each.numel())).view_as(each));
    return made;
  });
  auto optimizer = strategy.optimizer(net, Adam({.learning_rate = 0.01, .gradient = {.global_clipnorm = 0.1}}));
  const torch::Tensor x = torch::sin(torch::arange(12 * equivalence::kFeatures, torch::kDouble)).view({12, -1});
  for (int step = 0; step < equivalence::kSteps; ++step) {
    const auto halves = (x * (1.0 + 0.1 * step)).chunk(strategy.num_replicas_in_sync());
    strategy.run([&](Replica& replica) {
      const torch::Tensor half = halves[static_cast<std::size_t>(replica.id())].to(replica.device());
      optimizer[replica].minimize(replica.global_mean(net[replica]->forward(half).square().sum(1)));
    });
  }
  std::vector<torch::Tensor> flat;
  for (const auto& [name, tensor] : net.state()) flat.push_back(tensor.reshape({-1}).cpu());
  return torch::cat(flat);
}

// No card's part is in the memory of another one's process.
TEST(Offloaded, WorkersTakeTheStepsOfOneDevice) {
  if (!stands_in()) GTEST_SKIP() << "no stand-in for cards was asked for";
  const torch::Tensor wanted = trained_by_workers(OneDeviceStrategy("/CPU:0"));
  const Devices cards = on_cards(2);
  for (const int stage : {1, 2, 3}) {
    testing::with_workers(
        {.devices = {{cards[0]}, {cards[1]}}, .sharding = sharding_of(stage)}, [&](const Strategy& strategy) {
          EXPECT_LT(equivalence::distance(trained_by_workers(strategy), wanted), 1e-9) << "stage " << stage;
        });
  }
}

// ---- What lies where.

// A training of float32 parameters with inputs that are the same in each run.
struct Training {
  explicit Training(const Strategy& own, const Optimizer& rule = Adam({.learning_rate = 0.01}),
                    torch::ScalarType dtype = torch::kFloat)
      : strategy(own),
        net(own.mirror([&] {
          torch::nn::Sequential made(torch::nn::Linear(33, 61), torch::nn::Tanh(), torch::nn::Linear(61, 67),
                                     torch::nn::Tanh(), torch::nn::Linear(67, 3));
          const torch::NoGradGuard no_grad;
          for (torch::Tensor& p : made->parameters()) p.copy_(torch::sin(torch::arange(p.numel())).view_as(p) * 0.1);
          made->to(dtype);
          return made;
        })),
        optimizer(own.optimizer(net, rule)) {}

  // `factor` multiplies the loss of the first replica.
  void step(int number, double factor = 1.0) {
    strategy.run([&](Replica& replica) {
      const torch::Tensor x = torch::cos(torch::arange(33 * 4) * (1.0 + number + 0.1 * replica.id())).view({4, 33});
      const torch::Tensor share =
          x.to(replica.device(), net[replica]->parameters()[0].scalar_type(), /*non_blocking=*/true);
      const torch::Tensor loss = replica.global_mean(net[replica]->forward(share).square().sum(1));
      optimizer[replica].minimize(replica.id() == 0 ? loss * factor : loss);
    });
  }
  void steps(int first, int last) {
    for (int number = first; number < last; ++number) step(number);
  }

  torch::Tensor weights() const {
    std::vector<torch::Tensor> flat;
    for (const auto& [name, tensor] : net.state()) flat.push_back(tensor.cpu().reshape({-1}));
    return torch::cat(flat);
  }

  Strategy strategy;
  Mirrored<torch::nn::Sequential> net;
  MirroredOptimizer optimizer;
};

constexpr double kPsi = 33 * 61 + 61 + 61 * 67 + 67 + 67 * 3 + 3;

// Of Adam in float32, for each element of a replica's part: the parameter, the sum and two slots.
TEST(Offloaded, NoStateLiesOnACard) {
  COHORT_NEEDS_PLACES(2);
  for (const int stage : {1, 2, 3}) {
    for (const bool offloads : {true, false}) {
      SCOPED_TRACE(c10::str("stage ", stage, offloads ? ", offloaded" : ""));
      Training training(on(on_cards(2), stage, offloads));
      training.steps(0, 2);
      const StateBytes bytes = training.optimizer.state_bytes();
      const double slots = 8 * kPsi / 2;
      EXPECT_NEAR(static_cast<double>(bytes.slots), offloads ? 0 : slots, 0.05 * slots);
      EXPECT_NEAR(static_cast<double>(bytes.offloaded), offloads ? 2 * slots : 0, 0.1 * slots);
      if (stage == 3 && offloads) {  // two units of the three at most, the largest ones
        EXPECT_LT(static_cast<double>(bytes.parameters), 4 * (33 * 61 + 61 + 61 * 67 + 67 + 100));
      }

      const auto step = std::make_shared<Step>(training.net, Adam());
      int found = 0;
      for (const TensorPiece& piece : step->state().pieces()) {
        if (piece.name.find("exp_avg") == std::string::npos) continue;
        ++found;
        EXPECT_EQ(piece.values.is_cpu(), offloads) << piece.name << " on " << piece.values.device();
      }
      EXPECT_GT(found, 0);
    }
  }
}

// A step waits once for the sums of the gradients, and once for parameters that the program may have changed, or in
// stage 3 for the last units that the card copies. The loop itself waits, too.
TEST(Offloaded, AStepWaitsTwiceMore) {
  if (!stands_in()) GTEST_SKIP() << "no stand-in for cards was asked for";
  for (const int stage : {1, 2, 3}) {
    const auto waits = [&](bool offloads) {
      Training training(on(on_cards(2), stage, offloads));
      training.steps(0, 2);
      const int64_t before = synchronisations();
      training.steps(2, 7);
      return synchronisations() - before;
    };
    EXPECT_EQ(waits(true) - waits(false), 5 * 2 * 2) << "stage " << stage;
  }
}

// ---- What happens between steps.

Optimizer accumulated() {
  return Adam({.learning_rate = 0.01,
               .gradient = {.gradient_accumulation_steps = 2, .loss_scale = LossScale{.initial_scale = 64}}});
}

// The bits of states on a card are those of the CPU's kernels where kernels reach its memory, as on the stand-in.
void expect_alike(const torch::Tensor& got, const torch::Tensor& wanted) {
  if (stands_in()) {
    EXPECT_TRUE(torch::equal(got, wanted));
  } else {
    EXPECT_TRUE(torch::allclose(got, wanted, 1e-4, 1e-5));
  }
}

// A step is left out, and within an accumulation others go on with what one has saved.
TEST(Offloaded, AccumulatesAndLeavesStepsOut) {
  COHORT_NEEDS_PLACES(2);
  const auto first = [](Training& training) {
    training.steps(0, 2);
    training.step(2, std::numeric_limits<double>::infinity());
    training.steps(3, 5);
  };
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    Training wanted(on(on_cards(2), stage, /*offloads=*/false), accumulated());
    first(wanted);
    wanted.steps(5, 8);
    for (const bool offloads : {true, false}) {
      Training begun(on(on_cards(2), stage, offloads), accumulated());
      first(begun);
      Training resumed(on(on_cards(2), stage, !offloads), accumulated());
      resumed.net.load_state(begun.net.state());
      resumed.optimizer.load_state(begun.optimizer.state());
      resumed.optimizer.load_accumulated(begun.optimizer.accumulated());
      resumed.steps(5, 8);
      EXPECT_EQ(resumed.optimizer.iterations(), 3);
      EXPECT_EQ(resumed.optimizer.loss_scale(), 32.0);
      expect_alike(resumed.weights(), wanted.weights());
    }
  }
}

// Where the card has all parameters a program may write to them within a run, and load them outside of it.
TEST(Offloaded, ParametersThatTheProgramChangesAreGoneOnFrom) {
  COHORT_NEEDS_PLACES(2);
  for (const int stage : {1, 2, 3}) {
    std::vector<torch::Tensor> weights;
    for (const bool offloads : {true, false}) {
      Training training(on(on_cards(2), stage, offloads));
      training.steps(0, 2);
      std::vector<std::pair<std::string, torch::Tensor>> state = training.net.state();
      for (auto& [name, tensor] : state) tensor = tensor * 0.5;
      training.net.load_state(state);
      training.steps(2, 4);
      if (stage < 3) {
        training.strategy.run([&](Replica& replica) {
          for (torch::Tensor& each : training.net[replica]->parameters()) each.data().clamp_(-0.02, 0.02);
        });
      }
      training.steps(4, 6);
      weights.push_back(training.weights());
    }
    expect_alike(weights[0], weights[1]);
  }
}

TEST(Offloaded, HalfParametersTakeTheStepsOfThoseOnCards) {
  COHORT_NEEDS_PLACES(2);
  for (const int stage : {1, 2, 3}) {
    std::vector<torch::Tensor> weights;
    for (const bool offloads : {true, false}) {
      Training training(on(on_cards(2), stage, offloads), LAMB({.learning_rate = 0.01}), torch::kBFloat16);
      training.steps(0, 4);
      weights.push_back(training.weights().to(torch::kFloat));
    }
    EXPECT_LT(equivalence::distance(weights[0], weights[1]), 1e-3) << "stage " << stage;
  }
}

// ---- Checkpoints.

struct Fitted {
  NamedTensors weights;
  NamedTensors slots;
};

Fitted fitted(const Strategy& strategy, int64_t epochs, const std::filesystem::path& backups, bool in_pieces) {
  strategy.set_seed(5);
  const auto scope = strategy.scope();
  Sequential model = small_model(Adam({.learning_rate = 0.01, .ema = {.use_ema = true}}));
  FitOptions options{.epochs = epochs, .verbose = Verbose::kSilent};
  if (!backups.empty()) {
    options.callbacks.push_back(
        BackupAndRestore({.directory = backups, .delete_checkpoint = false, .sharded = in_pieces}));
  }
  (void)model.fit(batches_of_waves(24), options);
  return {.weights = model.weights(), .slots = model.optimizer().state()};
}

void expect_same(const NamedTensors& got, const NamedTensors& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].first, wanted[i].first);
    SCOPED_TRACE(got[i].first);
    expect_alike(got[i].second.cpu(), wanted[i].second.cpu());
  }
}

// Whole ones and pieces, saved by states of the one kind and taken up by those of the other.
TEST(Offloaded, CheckpointsAreThoseOfStatesOnCards) {
  COHORT_NEEDS_PLACES(2);
  for (const int stage : {2, 3}) {
    const Fitted wanted = fitted(on(on_cards(2), stage, /*offloads=*/false), 2, {}, false);
    for (const bool offloads : {true, false}) {
      for (const bool in_pieces : {true, false}) {
        SCOPED_TRACE(c10::str("stage ", stage, offloads ? ", saved offloaded" : "", in_pieces ? ", in pieces" : ""));
        const TemporaryFolder folder;
        (void)fitted(on(on_cards(2), stage, offloads), 1, folder / "cut", in_pieces);
        const Fitted resumed = fitted(on(on_cards(2), stage, !offloads), 2, folder / "cut", in_pieces);
        expect_same(resumed.weights, wanted.weights);
        expect_same(resumed.slots, wanted.slots);
      }
    }
  }
}

}  // namespace
}  // namespace cohort::offload_test
