// Holds every transport of the table whose ranks may be threads to what a communicator must do.
#include "collective/process/transports.h"

#include "tests/collective/process/conformance.h"
#include "tests/support/certificates.h"
#include "tests/support/errors.h"
#include "tests/support/process_ranks.h"
#include "tests/support/secret.h"

namespace cohort::transports_test {
namespace {

using testing::with_process_ranks;

class Transports : public ::testing::TestWithParam<std::string> {};

TEST_P(Transports, DoWhatACommunicatorMust) {
  for (const int size : {1, 2, 3, 4, 5}) {
    with_process_ranks(size, {.transport = GetParam()}, [](ProcessCommunicator& world, Membership&) {
      testing::check_sums(world);
      if (testing::in_rank_order(world)) testing::check_order_of_sums(world);
      testing::check_order_of_sums(world, &world);
      testing::check_half_sums(world);
      testing::check_repeats(world);
      testing::check_shared_sums(world);
      testing::check_copies(world);
      testing::check_wrong_calls(world);
    });
  }
}

TEST_P(Transports, MovePiecesAndMessagesAndSplit) {
  for (const int size : {1, 2, 3, 8}) {
    with_process_ranks(size, {.transport = GetParam()}, [](ProcessCommunicator& world, Membership&) {
      testing::check_pieces(world);
      testing::check_messages(world);
      testing::check_async(world);
      testing::check_split(world);
    });
  }
}

// A number that is added up in another order differs in its last bits only.
TEST_P(Transports, AddUpWhatTheRingDoes) {
  for (const int size : {2, 4}) {
    std::vector<std::vector<torch::Tensor>> sums;
    for (const std::string_view transport : {std::string_view("ring"), std::string_view(GetParam())}) {
      std::vector<torch::Tensor> of_ranks(static_cast<std::size_t>(size));
      with_process_ranks(size, {.transport = transport}, [&](ProcessCommunicator& world, Membership&) {
        auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(world.rank() + 1));
        torch::Tensor mine = torch::randn({size * 50'001}, generator, torch::kDouble);
        const torch::Tensor piece = world.reduce_scatter(mine, ReduceOp::kMean);
        // Pieces of different sizes, none among them.
        std::vector<torch::Tensor> pieces;
        for (int r = 0; r < size; ++r) pieces.push_back(mine.narrow(0, r, r * r * 1000));
        const torch::Tensor uneven = world.reduce_pieces(pieces);
        world.all_reduce({&mine, 1}, ReduceOp::kSum);
        of_ranks[static_cast<std::size_t>(world.rank())] = torch::cat({mine, piece, uneven});
      });
      sums.push_back(std::move(of_ranks));
    }
    for (std::size_t r = 0; r < sums[0].size(); ++r) {
      EXPECT_TRUE(torch::allclose(sums[0][r], sums[1][r], /*rtol=*/0, /*atol=*/1e-9)) << size << " at " << r;
    }
  }
}

TEST(ProcessRanks, OperationsAreSpansOfATrace) {
  testing::check_spans(
      [](const auto& fn) { with_process_ranks(2, {}, [&](ProcessCommunicator& world, Membership&) { fn(world); }); });
}

INSTANTIATE_TEST_SUITE_P(All, Transports, ::testing::ValuesIn(testing::transports_of_threads()),
                         [](const auto& info) { return info.param; });

// Ranks that have an identity, on one machine and as if they were on several.
class ProvedRanks : public ::testing::TestWithParam<bool> {};

TEST_P(ProvedRanks, DoWhatACommunicatorMust) {
  const TlsPem identity = testing::identity_of("0123456789abcdef");
  for (const int size : {1, 2, 3, 5}) {
    with_process_ranks(size, {.identity = identity, .one_machine = GetParam()},
                       [](ProcessCommunicator& world, Membership&) {
                         EXPECT_EQ(world.name(), "tcp");
                         testing::check_sums(world);
                         testing::check_order_of_sums(world);
                         testing::check_shared_sums(world);
                         testing::check_copies(world);
                         testing::check_wrong_calls(world);
                         testing::check_pieces(world);
                         testing::check_messages(world);
                         testing::check_async(world);
                         testing::check_split(world);
                       });
  }
}

TEST_P(ProvedRanks, SendLargeMessagesInBothDirectionsAtOnce) {
  const TlsPem identity = testing::identity_of("0123456789abcdef");
  with_process_ranks(3, {.identity = identity, .one_machine = GetParam(), .shared_memory = false},
                     [](ProcessCommunicator& world, Membership&) {
                       torch::Tensor value = torch::arange(3'000'000, torch::kDouble) + world.rank();
                       world.all_reduce({&value, 1}, ReduceOp::kSum);
                       EXPECT_TRUE(torch::equal(value, 3 * torch::arange(3'000'000, torch::kDouble) + 3));
                     });
}

INSTANTIATE_TEST_SUITE_P(On, ProvedRanks, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "OneMachine" : "SeveralMachines"; });

TEST(CertifiedRanks, SpeakToThoseOfTheirAuthority) {
  const testing::TemporaryFolder folder;
  const testing::Authority authority(folder, "authority");
  const std::vector<TlsPem> identities{authority.issue("a"), authority.issue("b"), authority.issue("c")};
  for (const bool one_machine : {false, true}) {
    with_process_ranks(3, {.identities = identities, .one_machine = one_machine},
                       [](ProcessCommunicator& world, Membership&) {
                         EXPECT_EQ(world.name(), "tcp");
                         testing::check_sums(world);
                         testing::check_messages(world);
                       });
  }
}

TEST(CertifiedRanks, RefuseThoseOfAnother) {
  const testing::TemporaryFolder folder;
  const testing::Authority authority(folder, "authority");
  const testing::Authority another(folder, "another");
  const TlsPem stranger = another.issue("stranger");
  TlsPem impostor = stranger;  // knows whom to accept, but has nothing that they accept
  const TlsPem good = authority.issue("good");
  impostor.ca = good.ca;
  for (const TlsPem& other : {stranger, impostor}) {
    testing::expect_error<Unavailable>(
        [&] {
          with_process_ranks(2, {.timeout = std::chrono::seconds(2), .identities = {good, other}},
                             [](ProcessCommunicator& world, Membership&) { testing::check_sums(world); });
        },
        "[collective] ring: rank ");
  }
}

TEST(TransportTable, AnUnknownNameListsTheKnownOnes) {
  testing::expect_error<InvalidArgument>([] { (void)make_transport("pigeon", {}); },
                                         "no transport \"pigeon\" between processes, only ring, gloo, mpi");
}

}  // namespace
}  // namespace cohort::transports_test
