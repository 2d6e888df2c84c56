// Numbers that come from another process.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "cohort/error.h"
#include "collective/process/process_communicator.h"
#include "tests/support/errors.h"
#include "tests/support/process_ranks.h"

namespace cohort::untrusted_peer_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::expect_error;

// Rank 0 of two. The other one does the same, but says a number of its own.
class Liar final : public Transport {
 public:
  explicit Liar(int64_t number) : number_(number) {}

  std::string_view name() const override { return "liar"; }
  int rank() const override { return 0; }
  int size() const override { return 2; }

  std::unique_ptr<Message> send(int /*to*/, std::span<const std::byte> bytes, Lane /*lane*/) override {
    // The ranks tell each other a hash and two numbers before they do something.
    std::copy(bytes.begin(), bytes.end(), place_.begin());
    std::memcpy(place_.data() + sizeof(uint64_t), &number_, sizeof number_);
    return std::make_unique<Done>();
  }
  std::unique_ptr<Message> receive(int /*from*/, std::span<std::byte> bytes, Lane /*lane*/) override {
    place_ = bytes;
    return std::make_unique<Done>();
  }
  std::unique_ptr<Transport> subset(std::span<const int> /*ranks*/, const std::string& /*name*/) override {
    return nullptr;
  }
  void abort() noexcept override {}

 private:
  struct Done final : Message {
    void wait() override {}
  };

  int64_t number_;
  std::span<std::byte> place_;
};

TEST(UntrustedPeer, RowsThatCannotBeAreRefused) {
  for (const int64_t rows : {int64_t{-5}, INT64_MIN, INT64_MAX, int64_t{1} << 60}) {
    ProcessCommunicator world(std::make_unique<Liar>(rows), {});
    expect_error<DataLoss>([&] { (void)world.all_gather(torch::ones({2, 3})); }, c10::str("[collective] all_gather: "));
    const std::vector<torch::Tensor> parts(2, torch::ones({2, 3}));
    expect_error<DataLoss>([&] { (void)world.all_to_all(parts); }, "[collective] all_to_all: ");
  }
}

// The number of the collective in which a rank is comes from that rank.
TEST(UntrustedPeer, APlaceThatIsNoNumberIsNone) {
  testing::with_process_ranks(2, {.straggler_after = milliseconds(100)},
                              [](ProcessCommunicator& world, Membership& tasks) {
                                if (world.rank() == 1) {
                                  (void)tasks.put("collective/at/1", "nowhere");
                                  std::this_thread::sleep_for(milliseconds(600));
                                }
                                world.barrier();
                              });
}

}  // namespace
}  // namespace cohort::untrusted_peer_test
