// What the processes of a pod agree on before a launch. The processes are threads here, which meet in a table.
#include "wings/xla/record/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <barrier>
#include <functional>
#include <thread>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "wings/xla/record/recorder.h"

namespace cohort::record::hosts_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Two processes.
struct Table {
  std::barrier<> barrier{2};
  std::vector<Hosts::Numbers> numbers = std::vector<Hosts::Numbers>(2);
  std::vector<std::string> texts = std::vector<std::string>(2);
  int shown = 0;  // how often they have shown each other what they have recorded
};

class TableHosts final : public Hosts {
 public:
  TableHosts(Table& table, int rank) : table_(table), rank_(static_cast<std::size_t>(rank)) {}

  std::vector<Numbers> gather(const std::string& /*what*/, const Numbers& mine) override {
    return exchange(table_.numbers, mine);
  }
  std::vector<std::string> gather_texts(const std::string& mine) override {
    if (rank_ == 0) ++table_.shown;
    return exchange(table_.texts, mine);
  }
  void sum(std::span<torch::Tensor> /*tensors*/) override {}
  std::string name(int host) const override { return "worker " + std::to_string(host); }

 private:
  template <typename Item>
  std::vector<Item> exchange(std::vector<Item>& all, const Item& mine) {
    all[rank_] = mine;
    table_.barrier.arrive_and_wait();
    const std::vector<Item> seen = all;
    table_.barrier.arrive_and_wait();
    return seen;
  }

  Table& table_;
  std::size_t rank_;
};

// Calls fn(hosts, rank) as both processes and returns what each has thrown.
std::vector<std::string> errors_of(Table& table, const std::function<void(Hosts&, int)>& fn) {
  std::vector<std::string> errors(2);
  const auto run = [&](int rank) {
    TableHosts hosts(table, rank);
    errors[static_cast<std::size_t>(rank)] = testing::error_of<FailedPrecondition>([&] { fn(hosts, rank); });
  };
  const std::jthread other(run, 1);
  run(0);
  return errors;
}

class HostsTest : public ::testing::Test {
 protected:
  HostsTest() { install_recorder({.devices = 2}); }

  using Fn = std::function<torch::Tensor(const torch::Tensor&)>;
  // Returns the program of a function of so many rows.
  static std::shared_ptr<const Program> program(int64_t rows, const Fn& fn) {
    const torch::Device device(torch::kXLA, 0);
    const torch::Tensor result = fn(make_parameter({torch::kFloat, {rows, 3}}, device));
    return recording_of(device).capture({&result, 1}).program;
  }

  Table table_;
};

TEST_F(HostsTest, TheSameProgramIsOneExchangeOfNumbers) {
  const auto own = program(4, [](const torch::Tensor& x) { return x.relu().sum(); });
  const std::vector<TensorType> sums{{torch::kFloat, {3}}};
  const auto errors =
      errors_of(table_, [&](Hosts& hosts, int) { EXPECT_TRUE(agree_on_program(hosts, own.get(), sums)); });
  EXPECT_EQ(errors, (std::vector<std::string>{"no error", "no error"}));
  EXPECT_EQ(table_.shown, 0);
}

TEST_F(HostsTest, SharesOfOtherSizesRunApart) {
  const auto fn = [](const torch::Tensor& x) { return x.relu().sum(); };
  const std::vector<std::shared_ptr<const Program>> own{program(4, fn), program(3, fn)};
  for (const bool differ_within : {false, true}) {
    const auto errors = errors_of(table_, [&](Hosts& hosts, int rank) {
      const Program* const mine = differ_within && rank == 1 ? nullptr : own[static_cast<std::size_t>(rank)].get();
      EXPECT_FALSE(agree_on_program(hosts, mine, {}));
    });
    EXPECT_EQ(errors, (std::vector<std::string>{"no error", "no error"}));
  }
  EXPECT_EQ(table_.shown, 2);
}

TEST_F(HostsTest, OtherOperationsOnTheSameShapesAreAnErrorOnBoth) {
  const std::vector<std::shared_ptr<const Program>> own{
      program(4, [](const torch::Tensor& x) { return x.exp().relu().sum(); }),
      program(4, [](const torch::Tensor& x) { return x.exp().tanh().sum(); })};
  const auto errors = errors_of(
      table_, [&](Hosts& hosts, int rank) { agree_on_program(hosts, own[static_cast<std::size_t>(rank)].get(), {}); });
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_THAT(errors[0], AllOf(HasSubstr("worker 0 has " + own[0]->hash()), HasSubstr("worker 1 has " + own[1]->hash()),
                               HasSubstr("operation 1, \"aten::relu"), HasSubstr("\"aten::tanh")));
}

TEST_F(HostsTest, OtherSumsAreAnErrorOnBoth) {
  const auto own = program(4, [](const torch::Tensor& x) { return x.relu().sum(); });
  const auto errors = errors_of(table_, [&](Hosts& hosts, int rank) {
    const std::vector<TensorType> sums(static_cast<std::size_t>(1 + rank), {torch::kFloat, {2}});
    agree_on_program(hosts, own.get(), sums);
  });
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_THAT(errors[0], HasSubstr("worker 0 for [Float[2]], worker 1 for [Float[2], Float[2]]"));
}

TEST_F(HostsTest, LoopsOfOtherLengthsAreAnErrorOnBoth) {
  const auto own = program(4, [](const torch::Tensor& x) { return x.relu().sum(); });
  const auto same = errors_of(table_, [&](Hosts& hosts, int) { agree_on_steps(hosts, *own, 7); });
  EXPECT_EQ(same, (std::vector<std::string>{"no error", "no error"}));
  const auto errors = errors_of(table_, [&](Hosts& hosts, int rank) { agree_on_steps(hosts, *own, 7 - 4 * rank); });
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_THAT(errors[0],
              HasSubstr("worker 0 was to begin 7 step(s) as a loop, worker 1 3: the hosts have to read values"));
  const auto other = program(4, [](const torch::Tensor& x) { return x.tanh().sum(); });
  const auto different =
      errors_of(table_, [&](Hosts& hosts, int rank) { agree_on_steps(hosts, rank == 0 ? *own : *other, 7); });
  EXPECT_THAT(different[1], HasSubstr("were to begin loops of different programs"));
}

}  // namespace
}  // namespace cohort::record::hosts_test
