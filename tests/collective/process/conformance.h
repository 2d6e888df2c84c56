// What every communicator between processes must do: the checks that the Gloo and the MPI tests share. Each is called
// by all ranks.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <vector>

#include "cohort/communicator.h"
#include "cohort/error.h"
#include "collective/process/process_communicator.h"
#include "tests/support/errors.h"

namespace cohort::testing {

inline void check_sums(Communicator& world) {
  const int size = world.size();
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kInt, torch::kLong, torch::kBFloat16, torch::kHalf}) {
    for (const int64_t count : {0, 1, 15, 17, 100, 5000, 300'000}) {
      std::vector<torch::Tensor> tensors{
          torch::arange(count, torch::kLong).remainder(16).to(dtype) * (world.rank() + 1), torch::full({3}, 2, dtype)};
      const torch::Tensor expected =
          torch::arange(count, torch::kLong).remainder(16).to(dtype) * (size * (size + 1) / 2);
      world.all_reduce(tensors, ReduceOp::kSum);
      EXPECT_TRUE(torch::equal(tensors[0], expected)) << dtype << " " << count;
      EXPECT_TRUE(torch::equal(tensors[1], torch::full({3}, 2 * size, dtype)));
      std::vector<torch::Tensor> mean{torch::full({5}, world.rank() * 2, dtype)};
      world.all_reduce(mean, ReduceOp::kMean);
      EXPECT_TRUE(torch::equal(mean[0], torch::full({5}, size - 1, dtype)));
    }
  }
  // What is not contiguous, and dtypes together.
  const torch::Tensor matrix = torch::ones({4, 6}) * world.rank();
  std::vector<torch::Tensor> views{matrix.t(), torch::tensor(int64_t{1}), matrix.new_ones({2}, torch::kDouble)};
  world.all_reduce(views, ReduceOp::kSum);
  EXPECT_TRUE(torch::equal(matrix, torch::full({4, 6}, size * (size - 1) / 2.0F)));
  EXPECT_EQ(views[1].item<int64_t>(), size);
  EXPECT_EQ(views[2][1].item<double>(), size);
}

// Added in rank order: the same bits everywhere, and those of a loop over the ranks. `shared`: in memory for that.
inline void check_order_of_sums(Communicator& world, ProcessCommunicator* shared = nullptr) {
  for (const int64_t count : {1000, 200'000}) {
    torch::Tensor expected;
    torch::Tensor mine;
    for (int rank = 0; rank < world.size(); ++rank) {
      auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(rank + 1));
      const torch::Tensor values = torch::randn({count}, generator, torch::kFloat) * std::pow(10.0, rank);
      expected = rank == 0 ? values.clone() : expected + values;
      if (rank == world.rank()) mine = values;
    }
    if (shared != nullptr) mine = shared->shared_zeros(count, torch::kFloat).copy_(mine);
    world.all_reduce({&mine, 1}, ReduceOp::kSum);
    EXPECT_TRUE(torch::equal(mine, expected)) << count;
  }
}

// Of tensors that the ranks may share memory for, whole and in parts: as of any others.
inline void check_shared_sums(ProcessCommunicator& world) {
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kLong}) {
    for (const int64_t count : {0, 1, 17, 5000, 300'000}) {
      torch::Tensor whole = world.shared_zeros(count, dtype);
      ASSERT_TRUE(torch::equal(whole, torch::zeros({count}, dtype))) << dtype << " " << count;
      for (const int64_t round : {1, 2, 3}) {  // the same memory again and again
        const torch::Tensor all = torch::arange(count, torch::kLong).remainder(16).to(dtype) * round;
        whole.copy_(all * (world.rank() + 1));
        for (const auto& [begin, end] : {std::pair{int64_t{0}, count / 3}, std::pair{count / 3, count}}) {
          torch::Tensor part = whole.slice(0, begin, end);
          world.all_reduce({&part, 1}, ReduceOp::kSum);
        }
        const int64_t ranks = world.size() * (world.size() + 1) / 2;
        EXPECT_TRUE(torch::equal(whole, all * ranks)) << dtype << " " << count << " " << round;
      }
    }
  }
  torch::Tensor mean = world.shared_zeros(5, torch::kFloat).fill_(2 * world.rank());
  const torch::Tensor other = world.shared_zeros(7, torch::kFloat).fill_(1);
  world.all_reduce({&mean, 1}, ReduceOp::kMean);
  EXPECT_TRUE(torch::equal(mean, torch::full({5}, static_cast<float>(world.size() - 1))));
  EXPECT_TRUE(torch::equal(other, torch::ones({7})));
}

inline void check_copies(Communicator& world) {
  for (int root = 0; root < world.size(); ++root) {
    std::vector<torch::Tensor> tensors{torch::full({3, 2}, world.rank()),
                                       torch::full({70'000}, world.rank(), torch::kByte), torch::empty({0}),
                                       torch::tensor(world.rank() == root)};
    world.broadcast(tensors, root);
    EXPECT_TRUE(torch::equal(tensors[0], torch::full({3, 2}, root)));
    EXPECT_TRUE(torch::equal(tensors[1], torch::full({70'000}, root, torch::kByte)));
    EXPECT_TRUE(tensors[3].item<bool>());
  }
  const std::vector<torch::Tensor> parts = world.all_gather(torch::full({world.rank(), 2}, world.rank()));
  ASSERT_EQ(parts.size(), static_cast<std::size_t>(world.size()));
  for (int rank = 0; rank < world.size(); ++rank) {
    EXPECT_TRUE(torch::equal(parts[static_cast<std::size_t>(rank)], torch::full({rank, 2}, rank)));
    EXPECT_EQ(world.all_gather(torch::tensor(world.rank()))[static_cast<std::size_t>(rank)].item<int64_t>(), rank);
  }
  const torch::Tensor rows = torch::arange(world.size() * 2).view({world.size() * 2, 1});
  EXPECT_TRUE(
      torch::equal(world.reduce_scatter(rows, ReduceOp::kSum), rows.narrow(0, world.rank() * 2, 2) * world.size()));
  world.barrier();
}

inline void check_wrong_calls(Communicator& world) {
  std::vector<torch::Tensor> undefined{torch::Tensor()};
  expect_error<InvalidArgument>([&] { world.all_reduce(undefined, ReduceOp::kSum); }, "got an undefined one");
  expect_error<InvalidArgument>([&] { world.broadcast({}, world.size()); }, "broadcast: root");
  expect_error<InvalidArgument>([&] { world.reduce_scatter(torch::ones({}), ReduceOp::kSum); }, "must be a multiple");
  expect_error<InvalidArgument>([&] { world.all_gather(torch::ones({2}).to_sparse()); },
                                "needs dense tensors, got Sparse");
}

}  // namespace cohort::testing
