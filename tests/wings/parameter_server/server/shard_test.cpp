#include "wings/parameter_server/server/shard.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "cohort/error.h"
#include "cohort/more_update_rules.h"
#include "cohort/strategy.h"
#include "tests/support/errors.h"

namespace cohort::shard_test {
namespace {

using testing::expect_error;

struct Case {
  std::string name;
  Optimizer optimizer;
  bool norms = false;
};

std::vector<Case> cases() {
  const Schedule rate = ExponentialDecay({.initial_learning_rate = 0.1, .decay_steps = 3, .decay_rate = 0.7});
  return {{"sgd", SGD({.learning_rate = rate, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01})},
          {"adam", Adam({.learning_rate = rate, .amsgrad = true, .gradient = {.clipvalue = 0.5}})},
          {"adamw", AdamW({.learning_rate = rate, .weight_decay = 0.1})},
          {"rmsprop", RMSprop({.learning_rate = rate, .momentum = 0.5})},
          {"adagrad", Adagrad({.learning_rate = rate, .initial_accumulator_value = 0.1})},
          {"nadam", Nadam({.learning_rate = rate})},
          {"ftrl", Ftrl({.learning_rate = rate, .l1_regularization_strength = 0.01})},
          {"adafactor", Adafactor({.learning_rate = rate}), true},
          {"lamb", LAMB({.learning_rate = rate, .weight_decay = 0.1}), true},
          {"lars", LARS({.learning_rate = rate, .momentum = 0.9}), true}};
}

torch::Tensor numbers(std::vector<int64_t> shape, int seed, torch::ScalarType dtype = torch::kFloat) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  return torch::randn(shape, generator, dtype);
}

torch::Tensor value_of(const Shard& shard) {
  return shard.read()->value;
}

torch::Tensor slot_of(const Shard& shard, const Optimizer& rule, const std::string& name) {
  const std::vector<std::string> slots = rule.rule().slots();
  const auto found = std::find(slots.begin(), slots.end(), name);
  if (found == slots.end()) throw std::runtime_error("no slot " + name);
  const Shard::Snapshot snapshot = shard.snapshot();
  return snapshot.rows(0, shard.num_rows()).at(static_cast<std::size_t>(found - slots.begin()) + 1).clone();
}

// 20 steps, the same bits as a training on one device (but for the order of a norm's sum).
TEST(Shard, StepsAsTheOptimizerOfOneDevice) {
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    for (const Case& each : cases()) {
      SCOPED_TRACE(each.name);
      const OneDeviceStrategy strategy("/CPU:0");
      const auto net = strategy.mirror([&] {
        torch::nn::Linear made(torch::nn::LinearOptions(70, 65).bias(false));
        made->to(dtype);
        return made;
      });
      const auto optimizer = strategy.optimizer(net, each.optimizer);
      Shard shard({.name = "weight", .shape = {65, 70}, .dtype = dtype}, net[0]->weight.detach().clone(),
                  each.optimizer);
      for (int step = 0; step < 20; ++step) {
        const torch::Tensor gradient = numbers({65, 70}, step, dtype);
        strategy.run([&](Replica& replica) { optimizer[replica].apply_gradients({gradient}); });
        EXPECT_TRUE(shard.apply_gradient({.closure = step}, gradient.clone()));
      }
      EXPECT_EQ(shard.iterations(), 20);
      if (each.norms) {
        EXPECT_TRUE(torch::allclose(value_of(shard), net[0]->weight, 1e-5, 1e-6));
      } else {
        EXPECT_TRUE(torch::equal(value_of(shard), net[0]->weight));
      }
    }
  }
}

// They are applied in one step, in the order of the shares, whatever the order in which they come.
TEST(Shard, SharesOfAStepAreAppliedTogether) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.name);
    Shard shard({.name = "w", .shape = {30, 7}}, torch::ones({30, 7}), each.optimizer);
    Shard wanted({.name = "w", .shape = {30, 7}}, torch::ones({30, 7}), each.optimizer);
    const std::vector<std::vector<int64_t>> orders = {{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}};
    for (int64_t step = 0; step < 3; ++step) {
      torch::Tensor sum;
      for (int share = 0; share < 4; ++share) {
        const torch::Tensor part = numbers({30, 7}, static_cast<int>(4 * step) + share);
        sum = sum.defined() ? sum + part : part;
      }
      wanted.apply_gradient({.closure = step}, sum);
      for (const int64_t share : orders[static_cast<std::size_t>(step)]) {
        EXPECT_EQ(shard.version(), step) << "nothing changes before the last one";
        const UpdateId id{.closure = 4 * step + share};
        const torch::Tensor part = numbers({30, 7}, static_cast<int>(4 * step + share));
        EXPECT_TRUE(shard.apply_gradient(id, part.clone(), {.index = share, .count = 4}));
        EXPECT_FALSE(shard.apply_gradient(id, part.clone(), {.index = share, .count = 4})) << "each counts once";
      }
    }
    EXPECT_TRUE(torch::equal(value_of(shard), value_of(wanted)));
    EXPECT_EQ(shard.iterations(), 3);
  }
}

TEST(Shard, SharesOfRowsAreAppliedTogether) {
  const Optimizer adam = Adam({.learning_rate = 0.1});
  Shard shard({.name = "t", .shape = {5, 2}}, torch::ones({5, 2}), adam);
  Shard wanted({.name = "t", .shape = {5, 2}}, torch::ones({5, 2}), adam);
  const torch::Tensor rows = numbers({4, 2}, 1);
  shard.apply_rows({.closure = 1}, torch::tensor({int64_t{4}, int64_t{2}}), rows.slice(0, 2).contiguous(),
                   {.index = 1, .count = 3});
  shard.apply_rows({.closure = 2}, torch::empty({0}, torch::kLong), torch::empty({0, 2}), {.index = 2, .count = 3});
  EXPECT_EQ(shard.version(), 0);
  shard.apply_rows({.closure = 0}, torch::tensor({int64_t{0}, int64_t{4}}), rows.slice(0, 0, 2).contiguous(),
                   {.index = 0, .count = 3});
  wanted.apply_rows({.closure = 0}, torch::tensor({int64_t{0}, int64_t{4}, int64_t{4}, int64_t{2}}), rows);
  EXPECT_TRUE(torch::equal(value_of(shard), value_of(wanted)));
  EXPECT_EQ(shard.iterations(), 1);
}

// The update is torch.optim.SparseAdam's: moments and corrections are of the rows that came, the others stay.
TEST(Shard, RowsAreUpdatedAlone) {
  const Optimizer adam = Adam({.learning_rate = 0.1, .epsilon = 1e-8, .formulation = Formulation::kTorch});
  Shard table({.name = "table", .shape = {6, 3}, .dtype = torch::kDouble}, torch::ones({6, 3}, torch::kDouble), adam);
  torch::Tensor p = torch::ones({6, 3}, torch::kDouble);
  torch::Tensor m = torch::zeros_like(p);
  torch::Tensor v = torch::zeros_like(p);
  const std::vector<std::vector<int64_t>> touched = {{4, 1}, {0}, {1, 5, 4}, {4}};
  for (std::size_t step = 0; step < touched.size(); ++step) {
    const torch::Tensor indices = torch::tensor(touched[step]);
    const torch::Tensor rows = numbers({indices.numel(), 3}, static_cast<int>(step), torch::kDouble);
    EXPECT_TRUE(table.apply_rows({.closure = static_cast<int64_t>(step)}, indices, rows));
    const double t = static_cast<double>(step) + 1;
    for (int64_t i = 0; i < indices.numel(); ++i) {
      const int64_t row = touched[step][static_cast<std::size_t>(i)];
      m[row] = 0.9 * m[row] + 0.1 * rows[i];
      v[row] = 0.999 * v[row] + 0.001 * rows[i] * rows[i];
      p[row] -= 0.1 * (m[row] / (1 - std::pow(0.9, t))) / ((v[row] / (1 - std::pow(0.999, t))).sqrt() + 1e-8);
    }
  }
  EXPECT_TRUE(torch::allclose(value_of(table), p, 1e-9, 1e-12));
  EXPECT_TRUE(torch::allclose(slot_of(table, adam, "exp_avg"), m, 1e-9, 1e-12));
  EXPECT_TRUE(torch::equal(value_of(table)[2], torch::ones({3}, torch::kDouble)));
  EXPECT_EQ(table.iterations(), 4);
}

TEST(Shard, RowsThatComeTwiceAreAddedUpFirst) {
  for (const Case& each : cases()) {
    if (each.norms) continue;
    SCOPED_TRACE(each.name);
    Shard one({.name = "t", .shape = {4, 5}}, torch::ones({4, 5}), each.optimizer);
    Shard other({.name = "t", .shape = {4, 5}}, torch::ones({4, 5}), each.optimizer);
    const torch::Tensor rows = numbers({5, 5}, 1);
    one.apply_rows({.closure = 1}, torch::tensor({int64_t{3}, int64_t{0}, int64_t{3}, int64_t{2}, int64_t{3}}), rows);
    const torch::Tensor sums = torch::stack({rows[1], rows[3], (rows[0] + rows[2]) + rows[4]});
    other.apply_rows({.closure = 1}, torch::tensor({int64_t{0}, int64_t{2}, int64_t{3}}), sums);
    EXPECT_TRUE(torch::equal(value_of(one), value_of(other)));
    EXPECT_TRUE(torch::equal(value_of(one)[1], torch::ones({5})));
  }
}

TEST(Shard, ManyRowsAreThoseOfADenseStep) {
  const Optimizer adam = Adam({.learning_rate = 0.1});
  Shard table({.name = "t", .shape = {5000, 16}}, torch::zeros({5000, 16}), adam);
  Shard dense({.name = "t", .shape = {5000, 16}}, torch::zeros({5000, 16}), adam);
  const torch::Tensor gradient = numbers({5000, 16}, 3);
  const torch::Tensor indices = torch::randperm(5000);
  table.apply_rows({.closure = 1}, indices, gradient.index_select(0, indices));
  dense.apply_gradient({.closure = 1}, gradient.clone());
  EXPECT_TRUE(torch::equal(value_of(table), value_of(dense)));
  EXPECT_TRUE(torch::equal(table.read_rows(indices), value_of(dense).index_select(0, indices)));
}

TEST(Shard, AnUpdateOfTheSameIdIsAppliedOnce) {
  Shard shard({.name = "w", .shape = {2}}, torch::zeros({2}), SGD({.learning_rate = 1.0}));
  EXPECT_TRUE(shard.apply_gradient({.closure = 7, .ordinal = 0}, torch::ones({2})));
  EXPECT_FALSE(shard.apply_gradient({.closure = 7, .ordinal = 0}, torch::ones({2}) * 5));
  EXPECT_TRUE(shard.apply_gradient({.closure = 7, .ordinal = 1}, torch::ones({2})));
  EXPECT_TRUE(shard.apply_gradient({.closure = 6, .ordinal = 0}, torch::ones({2}))) << "in any order";
  EXPECT_FALSE(shard.add({.closure = 6, .ordinal = 0}, torch::ones({2}))) << "whatever it was";
  EXPECT_TRUE(torch::equal(value_of(shard), torch::full({2}, -3.0F)));
  shard.forget_updates_below(7);
  EXPECT_FALSE(shard.assign({.closure = 6, .ordinal = 3}, torch::ones({2}))) << "nothing new comes from before";
  EXPECT_FALSE(shard.assign({.closure = 7, .ordinal = 1}, torch::ones({2})));
  EXPECT_TRUE(shard.assign({.closure = 8, .ordinal = 0}, torch::ones({2})));
  EXPECT_EQ(shard.iterations(), 3);
  EXPECT_EQ(shard.version(), 4);
}

// Eight threads send the same two thousand updates, each in an order of its own, while another one reads.
TEST(Shard, NoUpdateIsLostOrDoubledBetweenThreads) {
  constexpr int64_t kUpdates = 2000;
  Shard counter({.name = "count", .shape = {1000}, .dtype = torch::kLong, .trainable = false},
                torch::zeros({1000}, torch::kLong), SGD());
  std::atomic<int64_t> applied = 0;
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done) {
      const auto [value, version] = *counter.read();
      EXPECT_TRUE(torch::equal(value, torch::full({1000}, version, torch::kLong))) << "all of an update or nothing";
    }
  });
  {
    std::vector<std::jthread> writers;
    for (int64_t writer = 0; writer < 8; ++writer) {
      writers.emplace_back([&, writer] {
        const torch::Tensor one = torch::ones({1000}, torch::kLong);
        for (int64_t i = 0; i < kUpdates; ++i) {
          const int64_t which = (i * (2 * writer + 1) + writer * 37) % kUpdates;
          if (counter.add({.closure = which / 10, .ordinal = which % 10}, one)) ++applied;
        }
      });
    }
  }
  done = true;
  reader.join();
  EXPECT_TRUE(torch::equal(value_of(counter), torch::full({1000}, applied.load(), torch::kLong)));
  std::vector<char> seen(kUpdates);
  for (int64_t writer = 0; writer < 8; ++writer) {
    for (int64_t i = 0; i < kUpdates; ++i) {
      seen[static_cast<std::size_t>((i * (2 * writer + 1) + writer * 37) % kUpdates)] = 1;
    }
  }
  EXPECT_EQ(applied, std::count(seen.begin(), seen.end(), 1));
}

TEST(Shard, OnlyWhatChangedIsRead) {
  Shard shard({.name = "w", .shape = {}, .dtype = torch::kInt, .trainable = false}, torch::tensor(3, torch::kInt),
              SGD());
  const auto first = shard.read();
  ASSERT_TRUE(first);
  EXPECT_FALSE(shard.read(first->version));
  shard.add({.closure = 1}, torch::tensor(4, torch::kInt));
  const auto second = shard.read(first->version);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->value.item<int>(), 7);
  EXPECT_EQ(first->value.item<int>(), 3) << "a copy";
}

TEST(Shard, AnotherOneGoesOnBitForBit) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.name);
    const ShardSpec spec{.name = "w", .shape = {30, 20}};
    Shard whole(spec, torch::ones({30, 20}), each.optimizer);
    for (int step = 0; step < 5; ++step) whole.apply_gradient({.closure = step}, numbers({30, 20}, step));
    whole.forget_updates_below(3);
    // One of two shares of the next step is there.
    whole.apply_gradient({.closure = 6, .ordinal = 1}, numbers({30, 20}, 5), {.index = 1, .count = 2});
    Shard copy(spec, torch::zeros({30, 20}), each.optimizer);
    {
      const Shard::Snapshot snapshot = whole.snapshot();
      for (const int64_t first : {0, 11, 22}) {
        copy.load_rows(first, snapshot.rows(first, std::min<int64_t>(11, whole.num_rows() - first)));
      }
      copy.load_progress(snapshot.progress());
    }
    for (Shard* shard : {&whole, &copy}) {
      EXPECT_TRUE(shard->apply_gradient({.closure = 5, .ordinal = 1}, numbers({30, 20}, 6), {.count = 2}));
      for (int step = 3; step < 9; ++step) {
        EXPECT_EQ(shard->apply_gradient({.closure = step}, numbers({30, 20}, step)), step >= 5);
      }
      EXPECT_EQ(shard->iterations(), 10);
    }
    EXPECT_TRUE(torch::equal(value_of(whole), value_of(copy)));
    EXPECT_EQ(whole.version(), copy.version());
  }
}

TEST(Shard, WhatDoesNotFitIsRefusedByName) {
  const Optimizer sgd = SGD({.learning_rate = 1.0});
  Shard shard({.name = "net/w", .shape = {4, 2}}, torch::ones({4, 2}), sgd);
  const auto refused = [](const auto& call, const std::string& text) { expect_error<InvalidArgument>(call, text); };
  refused(
      [&] {
        shard.apply_gradient({}, torch::ones({2, 4}));
      },
      "[parameter server] net/w: a gradient must be contiguous, Float[4, 2], got Float[2, 4]");
  refused([&] { shard.apply_gradient({}, torch::ones({4, 2}, torch::kDouble)); }, "got Double[4, 2]");
  refused([&] { shard.apply_gradient({}, torch::ones({2, 4}).t()); }, "must be contiguous");
  refused([&] { shard.apply_gradient({}, {}); }, "got nothing");
  refused(
      [&] {
        shard.apply_rows({}, torch::tensor({int64_t{4}}), torch::ones({1, 2}));
      },
      "net/w: a gradient: row 4 came, there are 4");
  refused([&] { shard.read_rows(torch::tensor({int64_t{-1}})); }, "a lookup: row -1 came");
  refused([&] { shard.apply_rows({}, torch::tensor({1}, torch::kInt), torch::ones({1, 2})); }, "int64");
  refused(
      [&] {
        shard.apply_rows({}, torch::tensor({int64_t{1}}), torch::ones({2, 2}));
      },
      "a gradient of 1 rows must be contiguous, Float, of 2 elements, got Float[2, 2]");
  EXPECT_EQ(shard.version(), 0) << "nothing was applied";
  EXPECT_TRUE(shard.apply_gradient({}, torch::ones({4, 2}))) << "nor noted";

  refused([&] { Shard({.name = "h", .shape = {1}, .dtype = torch::kHalf}, torch::ones({1}, torch::kHalf), sgd); },
          "h is trained, so it must be float32 or float64, not Half");
  refused([&] { Shard({.name = "v/part_0", .shape = {2}, .has_siblings = true}, torch::ones({2}), LAMB()); },
          "v/part_0 is a part of a variable, and LAMB needs the whole");
  Shard counter({.name = "n", .shape = {}, .dtype = torch::kLong, .trainable = false}, torch::tensor(int64_t{0}), sgd);
  refused([&] { counter.apply_gradient({}, torch::tensor(int64_t{0})); }, "n is not trained, but a gradient came");
  refused([&] { counter.read_rows(torch::tensor({int64_t{0}})); }, "n is a scalar");
  Shard lamb({.name = "l", .shape = {2}}, torch::ones({2}), LAMB());
  expect_error<InvalidArgument>([&] { lamb.apply_rows({}, torch::tensor({int64_t{0}}), torch::ones({1})); },
                                "LAMB needs the whole gradient");

  refused(
      [&] {
        shard.apply_gradient({.closure = 9}, torch::ones({4, 2}), {.index = 2, .count = 2});
      },
      "net/w: a gradient is share 2 of 2");
  refused([&] { (void)shard.snapshot().rows(3, 2); }, "net/w: 2 rows from row 3 on were asked for, there are 4");
  refused([&] { shard.load_rows(0, {}); }, "0 tensors came for its rows, wanted 1");
  refused([&] { shard.load_rows(3, {torch::ones({2, 2})}); }, "2 rows from row 3 on were asked for");
  refused([&] { shard.load_rows(0, {torch::ones({2, 3})}); }, "rows of Float[2, 3] came, wanted Float[2, 2]");
  refused([&] { shard.load_progress({torch::ones({2})}); }, "what came is no progress of a shard");
  const torch::Tensor counts = torch::zeros({2}, torch::kLong);
  refused([&] { shard.load_progress({counts, torch::ones({3})}); }, "of shape [1 or more, 2], got Float[3]");
  const torch::Tensor log = torch::zeros({1, 2}, torch::kLong);
  refused([&] { shard.load_progress({counts, log, torch::ones({5}, torch::kLong)}); }, "are damaged");
  refused(
      [&] {
        shard.load_progress({torch::tensor({int64_t{-1}, int64_t{0}}), log});
      },
      "net/w: -1 changes and 0 steps");
}

// The tensors that another server has kept for a step are written to the shard's memory when the last share comes.
TEST(Shard, GradientsThatWaitAreCheckedWhenTheyCome) {
  Shard shard({.name = "t", .shape = {4, 2}}, torch::ones({4, 2}), SGD({.learning_rate = 1.0}));
  const auto load = [&](std::vector<int64_t> head, const std::vector<torch::Tensor>& part) {
    std::vector<torch::Tensor> progress = {torch::zeros({2}, torch::kLong), torch::zeros({1, 2}, torch::kLong),
                                           torch::tensor(head)};
    progress.insert(progress.end(), part.begin(), part.end());
    shard.load_progress(progress);
  };
  const auto refused = [&](std::vector<int64_t> head, const std::vector<torch::Tensor>& part, const std::string& text) {
    expect_error<InvalidArgument>([&] { load(std::move(head), part); }, text);
  };
  const auto row = [](int64_t index) { return torch::tensor({index}); };
  // The head: ordinal, the closure of share 0, shares, how many are summed up, which share, tensors.
  refused({0, 0, 2, 0, 0, 2}, {row(5'000'000), torch::ones({1, 2})}, "t: a gradient: row 5000000 came, there are 4");
  refused({0, 0, 2, 0, 0, 2}, {row(-100), torch::ones({1, 2})}, "t: a gradient: row -100 came, there are 4");
  refused({0, 0, 2, 0, 0, 2}, {row(1), torch::ones({1, 3})}, "a gradient of 1 rows must be");
  refused({0, 0, 2, 1, 0, 1}, {torch::ones({1 << 20})}, "t: a gradient must be contiguous, Float[4, 2], got Float");
  refused({0, 0, 2, 1, 0, 1}, {torch::ones({4, 2}, torch::kDouble)}, "got Double[4, 2]");
  for (const std::vector<int64_t>& head : std::vector<std::vector<int64_t>>{{0, 0, 3, 2, 0, 1},
                                                                            {0, 0, 3, 1, 2, 1},
                                                                            {0, 0, 2, 0, 2, 1},
                                                                            {0, 0, 2, 0, -1, 1},
                                                                            {0, 0, 1, 0, 0, 1},
                                                                            {0, 0, 2, 0, 0, 3},
                                                                            {0, 0, 0, 0, 0, 1}}) {
    refused(head, {torch::ones({4, 2})}, "are damaged");
  }
  EXPECT_TRUE(torch::equal(value_of(shard), torch::ones({4, 2})));
  load({0, 7, 2, 1, 0, 1}, {torch::ones({4, 2})});
  EXPECT_TRUE(shard.apply_gradient({.closure = 8}, torch::ones({4, 2}), {.index = 1, .count = 2}));
  EXPECT_TRUE(torch::equal(value_of(shard), torch::full({4, 2}, -1.0F)));
}

TEST(Shard, SharesThatDoNotBelongTogetherAreRefused) {
  Shard shard({.name = "t", .shape = {4, 2}}, torch::ones({4, 2}), SGD({.learning_rate = 1.0}));
  EXPECT_TRUE(shard.apply_rows({.closure = 3}, torch::tensor({int64_t{1}}), torch::ones({1, 2}), {.count = 2}));
  for (const int64_t count : {2, 3}) {
    expect_error<InvalidArgument>(
        [&] {
          shard.apply_gradient({.closure = 4}, torch::ones({4, 2}), {.index = 1, .count = count});
        },
        "but the others of its step are of 2 or of another kind");
  }
  EXPECT_TRUE(torch::equal(value_of(shard), torch::ones({4, 2})));
  // Flat rows are rows too.
  EXPECT_TRUE(
      shard.apply_rows({.closure = 4}, torch::tensor({int64_t{2}}), torch::ones({2}), {.index = 1, .count = 2}));
  EXPECT_EQ(shard.iterations(), 1);
  EXPECT_EQ(value_of(shard)[1][0].item<float>() + value_of(shard)[2][1].item<float>(), 0.0F);
}

// A step that failed leaves shares behind, which are no part of the next one.
TEST(Shard, WhatIsLeftOfAStepThatWasGivenUpIsForgotten) {
  Shard shard({.name = "w", .shape = {2}}, torch::zeros({2}), SGD({.learning_rate = 1.0}));
  EXPECT_TRUE(shard.apply_gradient({.closure = 0}, torch::full({2}, 100.0), {.index = 0, .count = 3}));
  EXPECT_TRUE(shard.apply_gradient({.closure = 1}, torch::full({2}, 100.0), {.index = 1, .count = 3}));
  for (const int64_t share : {0, 1, 2}) {
    EXPECT_TRUE(shard.apply_gradient({.closure = 3 + share}, torch::ones({2}), {.index = share, .count = 3}));
    if (share == 1) shard.apply_gradient({.closure = 2}, torch::full({2}, 100.0), {.index = 2, .count = 3});
  }
  EXPECT_TRUE(torch::equal(value_of(shard), torch::full({2}, -3.0F)));
  EXPECT_EQ(shard.iterations(), 1);
}

}  // namespace
}  // namespace cohort::shard_test
