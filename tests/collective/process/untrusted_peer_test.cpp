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
class Liar final : public Wire {
 public:
  explicit Liar(int64_t number) : number_(number) {}

  std::string_view name() const override { return "liar"; }
  int rank() const override { return 0; }
  int size() const override { return 2; }

  Ticket send(int /*to*/, std::span<const std::byte> bytes) override {
    // What the ranks tell each other before they do something: a hash and two numbers.
    std::copy(bytes.begin(), bytes.end(), place_.begin());
    std::memcpy(place_.data() + sizeof(uint64_t), &number_, sizeof number_);
    return 0;
  }
  Ticket receive(int /*from*/, std::span<std::byte> bytes) override {
    place_ = bytes;
    return 0;
  }
  void wait(Ticket /*ticket*/) override {}
  void drop() noexcept override {}
  void abort() noexcept override {}

 private:
  int64_t number_;
  std::span<std::byte> place_;
};

TEST(UntrustedPeer, RowsThatCannotBeAreRefused) {
  for (const int64_t rows : {int64_t{-5}, INT64_MIN, INT64_MAX, int64_t{1} << 60}) {
    ProcessCommunicator world(std::make_unique<Liar>(rows), {});
    expect_error<DataLoss>([&] { (void)world.all_gather(torch::ones({2, 3})); }, c10::str("[collective] all_gather: "));
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
