// Newer Gloos keep what they met by for as long as they live, and with it the membership: its own thread must not be
// the last to let go of a transport, because it would have to wait for its own end.
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "cohort/cluster/cluster_spec.h"
#include "collective/process/process_communicator.h"
#include "tests/support/workers.h"

namespace cohort::ownership_test {
namespace {

// A transport whose abort() takes a while, and which tells which thread destroyed it.
class SlowTransport final : public Transport {
 public:
  SlowTransport(std::promise<void>& aborts, std::thread::id& destroyed_by, std::shared_ptr<Membership> membership)
      : aborts_(aborts), destroyed_by_(destroyed_by), membership_(std::move(membership)) {}
  ~SlowTransport() override { destroyed_by_ = std::this_thread::get_id(); }

  std::string_view name() const override { return "slow"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::unique_ptr<Message> send(int /*to*/, std::span<const std::byte> /*bytes*/, Lane /*lane*/) override {
    return nullptr;
  }
  std::unique_ptr<Message> receive(int /*from*/, std::span<std::byte> /*bytes*/, Lane /*lane*/) override {
    return nullptr;
  }
  std::unique_ptr<Transport> subset(std::span<const int> /*ranks*/, const std::string& /*name*/) override {
    return nullptr;
  }
  void abort() noexcept override {
    aborts_.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }

 private:
  std::promise<void>& aborts_;
  std::thread::id& destroyed_by_;
  std::shared_ptr<Membership> membership_;
};

TEST(ProcessCommunicatorTest, AFailureOfTheGroupLeavesTheTransportToItsOwner) {
  std::promise<void> aborts;
  std::thread::id destroyed_by;
  auto membership = std::make_shared<Membership>(testing::loopback_workers(1), TaskId{"worker", 0});
  auto world = std::make_unique<ProcessCommunicator>(std::make_unique<SlowTransport>(aborts, destroyed_by, membership),
                                                     ProcessGroupOptions{.agreement = {.membership = membership}});
  membership->fail("worker 0: out of memory");
  ASSERT_EQ(aborts.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  membership.reset();
  world.reset();
  EXPECT_EQ(destroyed_by, std::this_thread::get_id());
}

}  // namespace
}  // namespace cohort::ownership_test
