// Sums over replicas within their graphs, on cards that stand in: the bits of steps without graphs, by one launch a
// replica; and replicas that run as they are, fail or do not come beside others with graphs.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <atomic>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cohort/cohort.h"
#include "tests/gpu/cards.h"
#include "tests/gpu/meeting_link.h"
#include "tests/gpu/programs.h"
#include "tests/support/errors.h"
#include "wings/function/device/graph_capture.h"

namespace cohort::exchange_in_graph_test {
namespace {

using namespace gpu;

using cohort::testing::error_of;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Training {
  explicit Training(Strategy of, const Optimizer& rule)
      : strategy(std::move(of)),
        layer(strategy.mirror([] { return torch::nn::Linear(3, 4); })),
        last(strategy.mirror([] { return torch::nn::Linear(3, 1); })),
        optimizer(strategy.optimizer(layer, rule)),
        of_last(strategy.optimizer(last, rule)) {}

  void minimize(Replica& replica, const torch::Tensor& x) const {
    const torch::Tensor loss = layer[replica]->forward(x).tanh().square().mean();
    optimizer[replica].minimize(loss / replica.num_replicas_in_sync());
  }

  Strategy strategy;
  Mirrored<torch::nn::Linear> layer;
  Mirrored<torch::nn::Linear> last;
  MirroredOptimizer optimizer;
  MirroredOptimizer of_last;
};

struct Program {
  std::function<Strategy()> strategy;
  Optimizer rule = Adam({.learning_rate = 0.05});
  std::function<void(const Training&, Replica&, const torch::Tensor& x)> step =
      [](const Training& training, Replica& replica, const torch::Tensor& x) { training.minimize(replica, x); };
  // Called by each replica before its step; may throw, or change what the step is given.
  std::function<void(int64_t step, int replica, torch::Tensor& x)> before = [](int64_t, int, torch::Tensor&) {};
  int64_t steps = 7;
};

struct Outcome {
  torch::Tensor numbers;
  int64_t calls = 0;     // of the function
  int64_t segments = 0;  // of the last step, in all replicas
  std::vector<std::string> errors;
};

// Replica r of step i gets waves of its own.
torch::Tensor waves(int64_t i, int replica, torch::Device device) {
  const torch::Tensor x = torch::sin(torch::arange(6, torch::kFloat) * static_cast<double>(i + 1) + replica);
  return x.view({2, 3}).to(device);
}

Outcome outcome_of(const Program& program, bool captured) {
  torch::manual_seed(5);
  const Training training(program.strategy(), program.rule);
  Outcome outcome;
  std::atomic<int64_t> calls = 0;
  const auto step = function(
      [&](Replica& replica, const torch::Tensor& x) {
        ++calls;
        program.step(training, replica, x);
      },
      {.name = "step", .jit_compile = captured});
  for (int64_t i = 0; i < program.steps; ++i) {
    outcome.segments = -segments_given();
    try {
      training.strategy.run([&](Replica& replica) {
        torch::Tensor x = waves(i, replica.id(), replica.device());
        program.before(i, replica.id(), x);
        step(replica, x);
      });
    } catch (const std::exception& error) {
      outcome.errors.emplace_back(error.what());
    }
    outcome.segments += segments_given();
  }
  outcome.calls = calls;
  std::vector<torch::Tensor> all;
  for (const auto* optimizer : {&training.optimizer, &training.of_last}) {
    for (const auto& [name, tensor] : optimizer->state()) all.push_back(tensor);
  }
  for (const auto* layers : {&training.layer, &training.last}) {
    for (const auto& copy : layers->copies()) {
      for (const torch::Tensor& each : copy->parameters()) all.push_back(each);
    }
  }
  for (torch::Tensor& each : all) each = each.detach().cpu().to(torch::kDouble).reshape({-1});
  outcome.numbers = torch::cat(all);
  return outcome;
}

// Returns what a captured run has done, which comes to the bits of one without graphs.
Outcome expect_same(const Program& program, const std::string& name) {
  const Outcome as_it_is = outcome_of(program, false);
  const Outcome captured = outcome_of(program, true);
  EXPECT_TRUE(torch::equal(captured.numbers, as_it_is.numbers))
      << name << ": the numbers differ by " << (captured.numbers - as_it_is.numbers).abs().max().item<double>();
  EXPECT_TRUE(as_it_is.numbers.isfinite().all().item<bool>()) << name;
  EXPECT_EQ(captured.errors, as_it_is.errors) << name;
  return captured;
}

std::vector<std::string> three_replicas_of_two_cards() {
  return {"/GPU:0", "/GPU:1", "/GPU:2"};
}

struct Placing {
  const char* name;
  std::vector<std::string> (*devices)();
  bool is_linked;
  std::size_t replicas;
};

Strategy on_placing(const Placing& placing, const ExchangeOptions& exchange = {}) {
  return placing.is_linked ? linked(placing.devices(), exchange) : on(placing.devices(), {.exchange = exchange});
}

const std::vector<Placing>& placings() {
  static const std::vector<Placing> all = {
      {"parts_of_a_card", parts_of_one_card, false, 2},      {"linked_parts_of_a_card", parts_of_one_card, true, 2},
      {"linked_cards", [] { return on_cards(2); }, true, 2}, {"linked_uneven", three_replicas_of_two_cards, true, 3},
      {"linked_parts", two_replicas_a_card, true, 4},
  };
  return all;
}

class ExchangeInGraph : public ::testing::TestWithParam<Placing> {};

// In one step the sums are not finite, which leaves it out.
TEST_P(ExchangeInGraph, HasTheBitsOfStepsWithoutGraphs) {
  COHORT_NEEDS_THE_STAND_IN();
  const auto infinity = [](int64_t step, int replica, torch::Tensor& x) {
    if (step == 5 && replica == 1) x[0][1] = std::numeric_limits<float>::infinity();
  };
  const GradientOptions scaled{.global_clipnorm = 0.5, .loss_scale = LossScale{.initial_scale = 64, .growth_steps = 2}};
  const std::vector<Program> programs = {
      {.strategy = [] { return on_placing(GetParam()); },
       .rule = AdamW({.learning_rate = 0.05, .gradient = scaled, .ema = {.use_ema = true}}),
       .before = infinity},
      {.strategy = [] { return on_placing(GetParam(), {.gradient_compression = "bfloat16"}); },
       .rule = LAMB({.learning_rate = 0.05})},
  };
  for (const Program& program : programs) {
    const Outcome captured = expect_same(program, program.rule.name());
    EXPECT_EQ(captured.segments, static_cast<int64_t>(GetParam().replicas)) << program.rule.name();
    EXPECT_EQ(captured.calls, 3 * static_cast<int64_t>(GetParam().replicas)) << program.rule.name();
  }
}

// Each exchange has a segment of its own.
TEST_P(ExchangeInGraph, MayComeSeveralTimes) {
  COHORT_NEEDS_THE_STAND_IN();
  const auto thrice = [](const Training& training, Replica& replica, const torch::Tensor& x) {
    training.minimize(replica, x);
    training.of_last[replica].minimize(training.last[replica]->forward(x).square().mean());
    training.minimize(replica, x + 1);
  };
  const Outcome captured = expect_same({.strategy = [] { return on_placing(GetParam()); }, .step = thrice}, "thrice");
  EXPECT_EQ(captured.calls, 3 * static_cast<int64_t>(GetParam().replicas));
}

INSTANTIATE_TEST_SUITE_P(All, ExchangeInGraph, ::testing::ValuesIn(placings()),
                         [](const auto& info) { return info.param.name; });

// All of a model's step is in one launch of each replica.
TEST(ExchangeOfAModel, IsInItsGraphs) {
  COHORT_NEEDS_THE_STAND_IN();
  const auto weights_after_fit = [](const Placing& placing, std::optional<bool> jit_compile, int64_t& segments) {
    torch::manual_seed(3);
    const Strategy strategy = on_placing(placing);
    strategy.set_seed(3);
    const auto scope = strategy.scope();
    Sequential model = small_model(Adam({.learning_rate = 0.05}));
    model.compile({.optimizer = Adam({.learning_rate = 0.05}),
                   .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {"accuracy"},
                   .jit_compile = jit_compile});
    const Dataset data = batches_of_waves(18);
    (void)model.fit(data, {.epochs = 3, .verbose = Verbose::kSilent});
    segments = -segments_given();
    (void)model.fit(data, {.verbose = Verbose::kSilent});
    segments += segments_given();
    std::vector<torch::Tensor> all;
    for (const auto& [name, tensor] : model.weights()) all.push_back(tensor.cpu().reshape({-1}));
    return torch::cat(all);
  };
  for (const Placing& placing : {placings()[0], placings()[2]}) {
    int64_t segments = 0;
    const torch::Tensor as_it_is = weights_after_fit(placing, std::nullopt, segments);
    EXPECT_TRUE(torch::equal(weights_after_fit(placing, true, segments), as_it_is)) << placing.name;
    EXPECT_EQ(segments, 2 * 2) << placing.name << ": two steps";
  }
}

// A replica that has another shape, which it warms up for, has no graph beside those of the others.
TEST(GraphsBesideOthers, RunAsTheyAreWhereOneDoes) {
  COHORT_NEEDS_THE_STAND_IN();
  for (const Placing& placing : {placings()[0], placings()[2]}) {
    const auto other_shape = [](int64_t step, int replica, torch::Tensor& x) {
      if (step == 4 && replica == 1) x = torch::cat({x, x}).slice(0, 0, 3);
    };
    const Outcome captured =
        expect_same({.strategy = [&] { return on_placing(placing); }, .before = other_shape, .steps = 7}, placing.name);
    EXPECT_EQ(captured.calls, 2 * 3 + 2) << placing.name;
    EXPECT_EQ(captured.segments, 2) << placing.name;
  }
}

// One that comes to its capture a step later than the others leaves the exchange to the host.
TEST(GraphsBesideOthers, AreCapturedTogetherOrExchangeByTheHost) {
  COHORT_NEEDS_THE_STAND_IN();
  for (const Placing& placing : {placings()[0], placings()[2]}) {
    const auto other_shape = [](int64_t step, int replica, torch::Tensor& x) {
      if (step == 1 && replica == 1) x = torch::cat({x, x}).slice(0, 0, 3);
    };
    const Outcome captured =
        expect_same({.strategy = [&] { return on_placing(placing); }, .before = other_shape, .steps = 7}, placing.name);
    EXPECT_EQ(captured.segments, 4) << placing.name;
  }
}

// Tensors of one replica that are gone end the graphs of all, and new ones are captured.
TEST(GraphsBesideOthers, EndWithOneOfThem) {
  COHORT_NEEDS_THE_STAND_IN();
  for (const Placing& placing : {placings()[0], placings()[2]}) {
    std::vector<torch::Tensor> factors(2);
    const auto renew = [&](int64_t step, int replica, torch::Tensor& x) {
      if (step != 0 && (step != 4 || replica != 1)) return;
      factors[static_cast<std::size_t>(replica)] = torch::full({1}, 1.0 + static_cast<double>(step)).to(x.device());
    };
    const auto times = [&](const Training& training, Replica& replica, const torch::Tensor& x) {
      const torch::Tensor& factor = factors[static_cast<std::size_t>(replica.id())];
      training.minimize(replica, x * factor);
    };
    expect_same({.strategy = [&] { return on_placing(placing); }, .step = times, .before = renew, .steps = 9},
                placing.name);
  }
}

// Nothing is left of a step in which one replica fails: before its call of a graph, or within the capture.
TEST(GraphsBesideOthers, GoOnAfterOneHasFailed) {
  COHORT_NEEDS_THE_STAND_IN();
  for (const Placing& placing : {placings()[0], placings()[2]}) {
    for (const int64_t failing : {2, 5}) {
      const auto fail_before = [=](int64_t step, int replica, torch::Tensor&) {
        if (step == failing && replica == 1) throw std::runtime_error("out of luck");
      };
      const Outcome before =
          expect_same({.strategy = [&] { return on_placing(placing); }, .before = fail_before, .steps = 9},
                      c10::str(placing.name, " ", failing));
      EXPECT_THAT(before.errors, ::testing::ElementsAre(HasSubstr("out of luck")));
    }
    int calls = 0;
    const auto fail_within = [&](const Training& training, Replica& replica, const torch::Tensor& x) {
      const torch::Tensor loss = training.layer[replica]->forward(x).square().mean();
      if (replica.id() == 1 && ++calls % 9 == 3) throw std::runtime_error("out of luck");
      training.optimizer[replica].minimize(loss);
    };
    const Program program{.strategy = [&] { return on_placing(placing); }, .step = fail_within, .steps = 9};
    const Outcome as_it_is = outcome_of(program, false);
    calls = 0;
    const Outcome within = outcome_of(program, true);
    EXPECT_TRUE(torch::equal(within.numbers, as_it_is.numbers)) << placing.name;
    EXPECT_THAT(within.errors, ::testing::ElementsAre(HasSubstr("out of luck")));
    EXPECT_EQ(within.segments, 2) << "both are captured in the next step";
  }
}

// One that fails behind its update while it is captured takes the step with it, as without other replicas.
TEST(GraphsBesideOthers, AreNotKeptWhereACaptureFails) {
  COHORT_NEEDS_THE_STAND_IN();
  for (const Placing& placing : {placings()[0], placings()[2]}) {
    std::atomic<int> calls = 0;
    const auto fail_behind = [&](const Training& training, Replica& replica, const torch::Tensor& x) {
      training.minimize(replica, x);
      if (replica.id() == 1 && ++calls == 3) throw std::runtime_error("out of luck");
    };
    const Outcome behind = outcome_of({.strategy = [&] { return on_placing(placing); }, .step = fail_behind}, true);
    EXPECT_THAT(behind.errors, ::testing::ElementsAre(HasSubstr("out of luck"))) << placing.name;
    EXPECT_EQ(behind.calls, 2 * 4) << placing.name;
    EXPECT_EQ(behind.segments, 2) << placing.name;
  }
}

TEST(GraphsBesideOthers, RefuseOtherOptimizers) {
  COHORT_NEEDS_THE_STAND_IN();
  std::atomic<int> calls = 0;
  const auto each_its_own = [&](const Training& training, Replica& replica, const torch::Tensor& x) {
    const int call = calls++ / 2;
    if (call < 2 || replica.id() == 0) training.minimize(replica, x);
    if (call < 2 || replica.id() == 1) {
      training.of_last[replica].minimize(training.last[replica]->forward(x).square().mean());
    }
  };
  const Program program{.strategy = [] { return linked(on_cards(2)); }, .step = each_its_own, .steps = 3};
  const Outcome captured = outcome_of(program, true);
  EXPECT_THAT(captured.errors, ::testing::ElementsAre(HasSubstr("update the parameters of different optimizers")));
}

// Both optimizers have parameters of the same sizes, so that their gradients could be added to each other's.
TEST(GraphsBesideOthers, RefuseOptimizersInAnotherOrder) {
  COHORT_NEEDS_THE_STAND_IN();
  for (const bool within : {true, false}) {  // whether the sums are made within the graphs
    const Strategy strategy = within ? linked(on_cards(2)) : on(on_cards(2));
    const auto make = [] { return torch::nn::Linear(3, 2); };
    const auto one = strategy.mirror(make), other = strategy.mirror(make);
    const auto of_one = strategy.optimizer(one, SGD()), of_other = strategy.optimizer(other, SGD());
    const auto step_of = [](const Mirrored<torch::nn::Linear>& layer, const MirroredOptimizer& optimizer) {
      const auto step = [&](Replica& replica, const torch::Tensor& x) {
        optimizer[replica].minimize(layer[replica]->forward(x).square().mean());
      };
      return function(step, {.name = "step", .jit_compile = true});
    };
    const auto step_one = step_of(one, of_one), step_other = step_of(other, of_other);
    const auto step_both = [&](bool mixed) {
      strategy.run([&](Replica& replica) {
        const torch::Tensor x = waves(0, replica.id(), replica.device());
        const bool one_first = mixed && replica.id() == 1;
        if (one_first) step_one(replica, x);
        step_other(replica, x);
        if (!one_first) step_one(replica, x);
      });
    };
    for (int i = 0; i < 3; ++i) step_both(false);
    EXPECT_THAT(error_of<FailedPrecondition>([&] { step_both(true); }),
                HasSubstr("update the parameters of different optimizers at the same time"))
        << within;
    step_both(false);
    for (const auto* layer : {&one, &other}) {
      const auto weights = layer->copies();
      EXPECT_TRUE(torch::equal(weights[0]->parameters()[0].cpu(), weights[1]->parameters()[0].cpu())) << within;
    }
  }
}

// The others wait for a replica before they give their cards anything.
TEST(GraphsBesideOthers, NameAReplicaThatDoesNotCome) {
  COHORT_NEEDS_THE_STAND_IN();
  const auto late = [](int64_t step, int replica, torch::Tensor&) {
    if (step == 4 && replica == 1) std::this_thread::sleep_for(milliseconds(700));
  };
  const Program program{.strategy = [] { return linked(on_cards(2), {}, milliseconds(500)); }, .before = late};
  const Outcome captured = outcome_of(program, true);
  ASSERT_EQ(captured.errors.size(), 1U);
  EXPECT_THAT(captured.errors.front(),
              HasSubstr("replica 0 waited 500 ms in the exchange of the gradients for replica(s) 1"));
  EXPECT_EQ(captured.segments, 2) << "the graphs run again";
}

// A card that has its graph waits there for one that gets none. The watch ends that and says who is missing.
TEST(GraphsBesideOthers, AreEndedWhereACardDoesNotGetItsOwn) {
  COHORT_NEEDS_THE_STAND_IN();
  const auto failing = [](int64_t step, int replica, torch::Tensor&) {
    if (step == 4 && replica == 1) MeetingLink::fails_on = 1;
  };
  const Program program{.strategy = [] { return linked(on_cards(2), {}, milliseconds(500)); }, .before = failing};
  const Outcome captured = outcome_of(program, true);
  ASSERT_EQ(captured.errors.size(), 3U) << "and nothing is done on a link that has ended";
  EXPECT_THAT(captured.errors.front(), HasSubstr("the card has come to grief"));
  EXPECT_THAT(captured.errors.back(),
              AllOf(HasSubstr("meeting: collective "),
                    HasSubstr("(graphs with all_reduce of gradients, 128 bytes in 2 bucket(s)"),
                    HasSubstr("has taken 500 ms: replica 1 (ve:1) has not come, while it waits on replica 0 (ve:0)")));
}

}  // namespace
}  // namespace cohort::exchange_in_graph_test
