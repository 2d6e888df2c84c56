// NCCL on cards: LibTorch's group between ranks, the all-reduce of one process, workers that exchange over it.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "cohort/error.h"
#include "collective/devices/nccl.h"
#include "tests/equivalence/runs.h"
#include "tests/gpu/cards.h"
#include "tests/support/rank_errors.h"
#include "tests/support/workers.h"

namespace cohort::nccl_test {
namespace {

using namespace gpu;

// A place where ranks that are threads leave each other texts.
class Board {
 public:
  void put(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    told_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return told_.count(key) > 0; })) throw DeadlineExceeded("no " + key);
    return told_[key];
  }
  std::optional<std::string> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    return told_.count(key) > 0 ? std::optional(told_[key]) : std::nullopt;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> told_;
};

// Runs fn(group, rank, its card) as each rank, one a card.
void on_ranks(int ranks, const std::function<void(Communicator&, int, torch::Device)>& fn) {
  Board board;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          const auto group = make_nccl(
              {.rank = rank,
               .size = ranks,
               .prefix = "nccl/",
               .timeout = std::chrono::seconds(60),
               .put = [&](const std::string& key, const std::string& value) { board.put(key, value); },
               .get = [&](const std::string& key, std::chrono::milliseconds limit) { return board.get(key, limit); },
               .find = [&](const std::string& key) { return board.find(key); }});
          fn(*group, rank, torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(rank)));
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    }
  }
  testing::rethrow_first(errors);
}

class NcclGroup : public ::testing::TestWithParam<bool> {
 protected:
  static int ranks() { return GetParam() ? cards() : 1; }
};

TEST_P(NcclGroup, SumsCopiesAndMoves) {
  COHORT_NEEDS_REAL_CARDS(GetParam() ? 2 : 1);
  const int size = ranks();
  on_ranks(size, [size](Communicator& group, int rank, torch::Device card) {
    for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16, torch::kLong}) {
      torch::Tensor mine = torch::full({3, 5}, rank + 1, torch::TensorOptions(dtype).device(card));
      group.all_reduce({&mine, 1}, ReduceOp::kSum);
      EXPECT_TRUE(torch::equal(mine.cpu(), torch::full({3, 5}, size * (size + 1) / 2, dtype))) << dtype;
    }
    torch::Tensor flags = torch::full({4}, rank == size - 1, torch::TensorOptions(torch::kBool).device(card));
    group.broadcast({&flags, 1}, size - 1);
    EXPECT_TRUE(flags.all().item<bool>());
    const auto on_card = torch::TensorOptions(torch::kFloat).device(card);
    const auto parts = group.all_gather(torch::full({3, 2}, rank, on_card));
    ASSERT_EQ(parts.size(), static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) {
      EXPECT_TRUE(torch::equal(parts[static_cast<std::size_t>(r)].cpu(), torch::full({3, 2}, r, torch::kFloat)));
    }
    const torch::Tensor piece = group.reduce_scatter(torch::ones({2 * size, 3}, on_card), ReduceOp::kSum);
    EXPECT_TRUE(torch::equal(piece.cpu(), torch::full({2, 3}, static_cast<float>(size))));
    std::vector<torch::Tensor> out;
    for (int r = 0; r < size; ++r) out.push_back(torch::full({rank + r, 2}, 10 * rank + r, on_card));
    const auto in = group.all_to_all(out);
    for (int r = 0; r < size; ++r) {
      EXPECT_TRUE(torch::equal(in[static_cast<std::size_t>(r)].cpu(),
                               torch::full({rank + r, 2}, 10 * r + rank, torch::kFloat)));
    }
    const auto half = group.split(rank % 2, -rank);
    torch::Tensor ones = torch::ones({4}, on_card);
    half->all_reduce({&ones, 1}, ReduceOp::kSum);
    EXPECT_EQ(ones[3].item<float>(), static_cast<float>(half->size()));
    if (rank == 0 && size > 1) group.send(ones, {.rank = 1});
    if (rank == 1) {
      torch::Tensor got = torch::zeros({4}, on_card);
      group.recv(got, {.rank = 0});
      EXPECT_EQ(got[3].item<float>(), static_cast<float>((size + 1) / 2));
    }
  });
}

// 1000 sums one after the other: nobody's result is read before it is there.
TEST_P(NcclGroup, ResultsAreThereWhenTheCallReturns) {
  COHORT_NEEDS_REAL_CARDS(GetParam() ? 2 : 1);
  const int size = ranks();
  on_ranks(size, [size](Communicator& group, int rank, torch::Device card) {
    torch::Tensor counter = torch::zeros({100'000}, torch::TensorOptions(torch::kDouble).device(card));
    for (int i = 0; i < 1000; ++i) {
      torch::Tensor mine = torch::full_like(counter, rank + i);
      group.all_reduce({&mine, 1}, ReduceOp::kSum);
      counter += mine;
    }
    const double expected = 1000.0 * size * (size - 1) / 2 + size * 999.0 * 1000 / 2;
    EXPECT_TRUE((counter == expected).all().item<bool>()) << counter[0].item<double>();
  });
}

INSTANTIATE_TEST_SUITE_P(All, NcclGroup, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "all_cards" : "one_rank"; });

// Each replica computes on a stream of its own; NCCL has to come after that, and what follows after NCCL.
TEST(NcclTest, EveryReplicasOwnStreamIsWaitedFor) {
  COHORT_NEEDS_REAL_CARDS(2);
  const MirroredStrategy strategy({.devices = on_cards(cards()), .exchange = {.cross_device_ops = "nccl"}});
  ASSERT_EQ(strategy.cross_device_ops(), "nccl");
  const auto sums = strategy.run([](Replica& replica) {
    const auto stream = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, replica.device().index());
    const c10::cuda::CUDAStreamGuard guard(stream);
    torch::Tensor slow =
        torch::eye(4096, torch::TensorOptions(torch::kFloat).device(replica.device())) * (replica.id() + 1);
    const torch::Tensor eye = torch::eye(4096, slow.options());
    for (int i = 0; i < 50; ++i) slow = slow.matmul(eye);
    const torch::Tensor sum = replica.all_reduce(ReduceOp::kSum, slow);
    const torch::Tensor mean = replica.all_reduce(ReduceOp::kMean, slow);
    return torch::stack({sum[7][7], mean[7][7]}).cpu();
  });
  const double total = cards() * (cards() + 1) / 2.0;
  for (int r = 0; r < cards(); ++r) {
    EXPECT_EQ(sums[static_cast<std::size_t>(r)][0].item<double>(), total);
    EXPECT_NEAR(sums[static_cast<std::size_t>(r)][1].item<double>(), total / cards(), 1e-6);
  }
}

// Two replicas on each card, which are added up there before NCCL does so between the cards, in buckets.
TEST(NcclTest, SeveralReplicasOfACardTrainAsOneDevice) {
  COHORT_NEEDS_REAL_CARDS(2);
  const auto make = [] { return torch::nn::Linear(equivalence::kFeatures, equivalence::kClasses); };
  const auto rule = SGD({.learning_rate = 0.05, .momentum = 0.9});
  const torch::Tensor alone = equivalence::weights_after(OneDeviceStrategy("/CPU:0"), rule, {}, make);
  const MirroredStrategy strategy({.devices = {"/GPU:0", "/GPU:1", "/GPU:2", "/GPU:3"},
                                   .exchange = {.cross_device_ops = "nccl", .bytes_per_pack = 64}});
  EXPECT_LT(equivalence::distance(alone, equivalence::weights_after(strategy, rule, {}, make)), 1e-8);
}

// Workers as threads of this process, each with a card of its own.
TEST(NcclTest, WorkersTrainAsOneDevice) {
  COHORT_NEEDS_REAL_CARDS(1);
  const auto make = [] { return torch::nn::Linear(equivalence::kFeatures, equivalence::kClasses); };
  const auto rule = SGD({.learning_rate = 0.05, .momentum = 0.9});
  const equivalence::RunOptions run{.short_batches = false};
  const torch::Tensor alone = equivalence::weights_after(OneDeviceStrategy("/CPU:0"), rule, run, make);
  testing::WorkersOptions options{.workers = 1,
                                  .communication = {.implementation = "nccl", .timeout = std::chrono::seconds(60)}};
  options.devices = {{on_cards(1)[0]}};
  testing::with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
    EXPECT_LT(equivalence::distance(alone, equivalence::weights_after(strategy, rule, run, make)), 1e-8);
  });
}

torch::Tensor trained_by_workers(const Strategy& strategy) {
  const auto net = strategy.mirror([] {
    torch::nn::Sequential made(torch::nn::Linear(8, 64), torch::nn::Tanh(), torch::nn::Linear(64, 3));
    const torch::NoGradGuard no_grad;
    made->to(torch::kDouble);
    for (torch::Tensor& p : made->parameters()) p.copy_(torch::cos(torch::arange(p.numel())).view(p.sizes()) / 4);
    return made;
  });
  auto optimizer = strategy.optimizer(net, SGD({.learning_rate = 0.05, .momentum = 0.9}));
  const torch::Tensor x = torch::sin(torch::arange(96, torch::kDouble)).view({12, 8});
  for (int step = 0; step < 10; ++step) {
    const auto parts = (x * (1.0 + 0.1 * step)).chunk(strategy.num_replicas_in_sync());
    strategy.run([&](Replica& replica) {
      const torch::Tensor part = parts[static_cast<std::size_t>(replica.id())].to(replica.device());
      optimizer[replica].minimize(replica.global_mean(net[replica]->forward(part).square().sum(1)));
    });
  }
  std::vector<torch::Tensor> flat;
  for (const auto& p : net.copies().back()->parameters()) flat.push_back(p.detach().reshape({-1}).cpu());
  return torch::cat(flat);
}

// The gradients of each go to the others in buckets, while backward runs.
TEST(NcclTest, WorkersExchangeBesideBackward) {
  COHORT_NEEDS_REAL_CARDS(2);
  const torch::Tensor alone = trained_by_workers(OneDeviceStrategy("/CPU:0"));
  for (const char* implementation : {"nccl", "ring"}) {
    testing::WorkersOptions options{
        .workers = 2, .communication = {.implementation = implementation, .timeout = std::chrono::seconds(60)}};
    for (const std::string& card : on_cards(2)) options.devices.push_back({card});
    options.exchange.bytes_per_pack = 64;
    testing::with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
      EXPECT_LT(equivalence::distance(alone, trained_by_workers(strategy)), 1e-8) << implementation;
    });
  }
}

TEST(NcclTest, WorkersReduceWhatTheirCardsHave) {
  COHORT_NEEDS_REAL_CARDS(1);
  testing::WorkersOptions options{.workers = cards(),
                                  .communication = {.implementation = "nccl", .timeout = std::chrono::seconds(60)}};
  for (const std::string& card : on_cards(cards())) options.devices.push_back({card});
  testing::with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
    const auto ones = strategy.run([](Replica& replica) { return torch::ones({1000}, replica.device()); });
    const torch::Tensor sum = strategy.reduce(ReduceOp::kSum, ones);
    EXPECT_TRUE(torch::equal(sum.cpu(), torch::full({1000}, static_cast<float>(options.workers))));
  });
}

}  // namespace
}  // namespace cohort::nccl_test
