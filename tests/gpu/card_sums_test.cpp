// Gradients of replicas on cards of several workers, which cards add up by themselves beside backward: over something
// in the place of NCCL between processes.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "base/access.h"
#include "cohort/cohort.h"
#include "collective/algorithms/hierarchical.h"
#include "strategy/core.h"
#include "strategy/strategies/devices.h"
#include "strategy/worker_group.h"
#include "tests/gpu/cards.h"
#include "tests/gpu/stand_in_streams.h"
#include "tests/gpu/stand_in_sums.h"
#include "tests/gpu/worker_training.h"
#include "tests/support/errors.h"
#include "tests/support/process_ranks.h"

namespace cohort::card_sums_test {
namespace {

using namespace gpu;

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::ProcessRanksOptions;
using testing::with_process_ranks;

ProcessRanksOptions with_card_sums(const std::shared_ptr<SumHall>& hall) {
  return {.devices = [hall](const auto& member) { return std::make_shared<CardSums>(hall, member->task().index); },
          .device_type = kCard};
}

// The workers of a strategy whose cards add up by themselves.
class SummingWorkers final : public WorkerGroup {
 public:
  explicit SummingWorkers(std::unique_ptr<ProcessCommunicator> world) : WorkerGroup(std::move(world)) {}

  std::shared_ptr<SumsBeside> beside(Beside here) const override {
    return make_sums_over_processes(here.devices, std::move(here.local), world_->split_processes(0, rank()),
                                    seconds(20));
  }
  std::shared_ptr<Communicator> over_all(std::shared_ptr<Communicator> local) const override {
    locals_.push_back(std::move(local));
    return make_hierarchical(*locals_.back(), world());
  }
  std::optional<int64_t> known_total(int64_t /*mine*/) const override { return std::nullopt; }
  bool ends_alone() const override { return false; }

 private:
  mutable std::vector<std::shared_ptr<Communicator>> locals_;
};

Strategy summing(std::unique_ptr<ProcessCommunicator> world, const Devices& names) {
  std::vector<std::vector<DeviceSpec>> devices;
  std::vector<LogicalDevice> own;
  for (int worker = 0; worker < kWorkers; ++worker) {
    std::vector<DeviceSpec>& specs = devices.emplace_back();
    for (const std::string& name : names[static_cast<std::size_t>(worker)]) {
      DeviceSpec spec = DeviceSpec::parse(name);
      spec.job = "worker";
      spec.task = worker;
      specs.push_back(spec.canonical());
      if (worker == world->rank()) own.push_back(find_logical_device(name));
    }
  }
  StrategyPlan plan = local_plan("summing", own);
  plan.topology = Topology::batch(devices);
  plan.exchange.bytes_per_pack = 64;
  plan.expects_workers = true;
  plan.workers = std::make_shared<SummingWorkers>(std::move(world));
  return Access::make<Strategy>(std::make_shared<StrategyCore>(std::move(plan)));
}

TEST(CardSumsOverWorkers, TrainAsOneDevice) {
  COHORT_NEEDS_THE_STAND_IN();
  for (const auto& [devices, rule] : {std::pair(a_card_each(), rule_of_all()), std::pair(cards_each(), plain_rule())}) {
    const auto hall = std::make_shared<SumHall>(kWorkers);
    const Late late(milliseconds(1));
    CardSums::sums = 0;
    WeightsOfWorkers weights;
    with_process_ranks(kWorkers, with_card_sums(hall), [&, &names = devices, &own = rule](auto& world, Membership&) {
      const Strategy strategy = summing(world.split_processes(0, world.rank()), names);
      weights[static_cast<std::size_t>(strategy.input_context().input_pipeline_id)] = trained(strategy, own);
    });
    EXPECT_GT(CardSums::sums, 6 * kWorkers);
    EXPECT_LT(equivalence::distance(weights[0], trained(OneDeviceStrategy("/CPU:0"), rule)), 1e-9) << rule.name();
    EXPECT_TRUE(torch::equal(weights[0], weights[1])) << rule.name();
  }
}

// Neither a call nor a wait for a point makes the host wait for a card or another worker.
TEST(CardSumsOverWorkers, TheHostWaitsForNothing) {
  COHORT_NEEDS_THE_STAND_IN();
  const auto hall = std::make_shared<SumHall>(kWorkers);
  with_process_ranks(kWorkers, with_card_sums(hall), [](ProcessCommunicator& world, Membership&) {
    const auto sums = sums_over(world, seconds(20));
    const torch::Tensor mine = torch::full({32}, world.rank() + 1.0).to(card_of(world.rank()), /*non_blocking=*/true);
    world.barrier();
    const Late late(milliseconds(200));
    const int64_t before = synchronisations();
    const SumsBeside::Ends ends = sums->begin("gradients, bucket 1 of 1", {{mine}}, {sums->mark(0)});
    EXPECT_FALSE(ends[0][0]->reached());
    EXPECT_EQ(synchronisations(), before);
    ends[0][0]->wait(mine.device());
    EXPECT_EQ(synchronisations(), before);
    world.barrier();
    EXPECT_TRUE(torch::equal(mine.cpu(), torch::full({32}, 3.0)));
    sums->require_well();
  });
}

// Waits until the sums are not well, and returns what they say.
template <typename Kind>
std::string error_in(const SumsBeside& sums) {
  std::string error = "no error";
  for (int i = 0; i < 5000 && error == "no error"; ++i) {
    error = error_of<Kind>([&] { sums.require_well(); });
    std::this_thread::sleep_for(milliseconds(1));
  }
  return error;
}

TEST(CardSumsOverWorkers, AWorkerThatDoesNotComeIsNamedAtTheDeadline) {
  COHORT_NEEDS_THE_STAND_IN();
  const auto hall = std::make_shared<SumHall>(kWorkers);
  with_process_ranks(kWorkers, with_card_sums(hall), [](ProcessCommunicator& world, Membership&) {
    const auto sums = sums_over(world, milliseconds(300));
    if (world.rank() == 0) {
      const torch::Tensor mine = torch::ones({4}).to(card_of(0));
      (void)sums->begin("gradients, bucket 3 of 4", {{mine}}, {sums->mark(0)});
      EXPECT_THAT(error_in<DeadlineExceeded>(*sums),
                  AllOf(HasSubstr("cards: collective "),
                        HasSubstr("(all_reduce of gradients, bucket 3 of 4 over the workers, 16 bytes) has taken"),
                        HasSubstr(" 300 ms: all have come, and it does not end on worker 0 (ve:0)"),
                        HasSubstr("; of the workers it waits for worker 1")));
    }
    world.barrier();
  });
}

TEST(CardSumsOverWorkers, AFailureOfAWorkerEndsThem) {
  COHORT_NEEDS_THE_STAND_IN();
  const auto hall = std::make_shared<SumHall>(kWorkers);
  with_process_ranks(kWorkers, with_card_sums(hall), [](ProcessCommunicator& world, Membership& membership) {
    const auto sums = sums_over(world, seconds(60));
    if (world.rank() == 1) return membership.fail("worker 1: replica 1 failed: out of luck");
    const torch::Tensor mine = torch::ones({4}).to(card_of(0));
    try {
      (void)sums->begin("gradients, bucket 1 of 4", {{mine}}, {sums->mark(0)});
    } catch (const Unavailable& error) {  // it has come already
      EXPECT_THAT(error.what(), HasSubstr("out of luck"));
      return;
    }
    EXPECT_THAT(error_in<Unavailable>(*sums), HasSubstr("out of luck"));
  });
}

}  // namespace
}  // namespace cohort::card_sums_test
