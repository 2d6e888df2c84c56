// The checks of what every communicator must do, which the tests of all back ends share. Each is called by all ranks.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cohort/communicator.h"
#include "cohort/error.h"
#include "cohort/trace.h"
#include "collective/process/process_communicator.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

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
  // Tensors that are not contiguous, and dtypes together.
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

// Half types are added up in float32 and rounded once, whatever the size.
inline void check_half_sums(Communicator& world) {
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    for (const int64_t rows : {5, 20'000}) {
      torch::Tensor sum;
      torch::Tensor mine;
      for (int rank = 0; rank < world.size(); ++rank) {
        auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(rank + 1));
        const torch::Tensor values = torch::randn({rows * world.size()}, generator, torch::kFloat).to(dtype);
        sum = rank == 0 ? values.to(torch::kFloat) : sum + values.to(torch::kFloat);
        if (rank == world.rank()) mine = values;
      }
      const torch::Tensor expected = sum.to(dtype);
      EXPECT_TRUE(
          torch::equal(world.reduce_scatter(mine, ReduceOp::kSum), expected.narrow(0, world.rank() * rows, rows)));
      world.all_reduce({&mine, 1}, ReduceOp::kSum);
      EXPECT_TRUE(torch::equal(mine, expected)) << dtype << " " << rows;
    }
  }
}

// Checks sums of tensors that the ranks may share memory for, whole and in parts.
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

// Returns whether the sums of a back end are added in rank order, whatever the call: an engine's are not.
inline bool in_rank_order(const Communicator& world) {
  return world.name() != "gloo" && world.name() != "mpi";
}

// Checks that a sum is the other one, but for its rounding where an engine adds up.
inline void expect_same_sum(const Communicator& world, const torch::Tensor& sum, const torch::Tensor& other) {
  const bool exact = in_rank_order(world) || !c10::isFloatingType(sum.scalar_type()) || sum.element_size() == 2;
  const double tolerance = exact ? 0 : sum.scalar_type() == torch::kDouble ? 1e-12 : 1e-4;
  EXPECT_EQ(sum.sizes(), other.sizes());
  EXPECT_TRUE(torch::allclose(sum, other, tolerance, tolerance)) << sum.scalar_type() << sum.sizes();
}

// The same call twice gives the same bits, on all ranks.
inline void check_repeats(Communicator& world) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(world.rank() + 1));
  for (const int64_t rows : {1, 700, 100'000}) {
    const torch::Tensor mine = torch::randn({rows * world.size()}, generator, torch::kFloat);
    const auto sum = [&] {
      torch::Tensor all = mine.clone();
      world.all_reduce({&all, 1}, ReduceOp::kSum);
      return std::pair{all, world.reduce_scatter(mine, ReduceOp::kSum)};
    };
    const auto [all, piece] = sum();
    for (int round = 0; round < 3; ++round) {
      const auto [all_again, piece_again] = sum();
      EXPECT_TRUE(torch::equal(all, all_again) && torch::equal(piece, piece_again)) << rows << " in " << round;
    }
    for (const torch::Tensor& other : world.all_gather(all)) EXPECT_TRUE(torch::equal(all, other)) << rows;
  }
}

// Pieces of tensors that go to one rank each; also of different sizes, and none at all.
inline void check_pieces(Communicator& world) {
  const int size = world.size();
  const int me = world.rank();
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kLong, torch::kHalf}) {
    for (const int64_t rows : {0, 1, 5, 2000}) {
      auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(me + 1));
      const torch::Tensor mine = (torch::randn({size * rows, 3}, generator, torch::kFloat) * 10).to(dtype);
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
        torch::Tensor whole = mine.clone();
        world.all_reduce({&whole, 1}, op);
        const torch::Tensor piece = world.reduce_scatter(mine, op);
        expect_same_sum(world, piece, whole.narrow(0, me * rows, rows));
      }
    }
  }
  for (const int64_t most : {1, 3, 50'000}) {  // 1: nobody has any rows
    const auto rows = [&](int from, int to) { return (from + 2 * to) % most; };
    std::vector<torch::Tensor> parts;
    for (int to = 0; to < size; ++to) parts.push_back(torch::full({rows(me, to), 2}, 100 * me + to));
    const std::vector<torch::Tensor> received = world.all_to_all(parts);
    ASSERT_EQ(received.size(), parts.size());
    for (int from = 0; from < size; ++from) {
      EXPECT_TRUE(
          torch::equal(received[static_cast<std::size_t>(from)], torch::full({rows(from, me), 2}, 100 * from + me)))
          << most << " from " << from;
    }
  }
}

// Messages around a ring of the ranks, both ways at once.
inline void check_messages(Communicator& world) {
  if (world.size() == 1) return;
  const int me = world.rank();
  const int next = (me + 1) % world.size();
  const int previous = (me + world.size() - 1) % world.size();
  std::vector<Work<>> works;
  std::vector<torch::Tensor> from_previous;
  std::vector<torch::Tensor> from_next;
  for (const int64_t count : {0, 1, 17, 300'000}) {
    const auto tag = static_cast<int>(count % 10);
    works.push_back(world.send_async(torch::full({count}, me), {.rank = next, .tag = tag}));
    works.push_back(world.send_async(torch::full({count}, -me), {.rank = previous}));
    from_previous.push_back(torch::full({count}, 77));
    from_next.push_back(torch::full({count}, 77));
    works.push_back(world.recv_async(from_previous.back(), {.rank = previous, .tag = tag}));
    works.push_back(world.recv_async(from_next.back(), {.rank = next}));
  }
  // Collectives do not wait for messages, nor these for them.
  torch::Tensor sum = torch::ones({3});
  world.all_reduce({&sum, 1}, ReduceOp::kSum);
  for (const Work<>& work : works) work.wait();
  for (std::size_t i = 0; i < from_next.size(); ++i) {
    EXPECT_TRUE(torch::equal(from_previous[i], torch::full_like(from_previous[i], previous)));
    EXPECT_TRUE(torch::equal(from_next[i], torch::full_like(from_next[i], -next)));
  }
  // One after the other, into what is not contiguous and of other dtypes.
  const torch::Tensor matrix = torch::zeros({2, 3}, torch::kLong);
  const torch::Tensor values = torch::arange(6).view({3, 2});
  if (me == 0) world.send(values, {.rank = 1});
  if (me == 1) {
    world.recv(matrix.t(), {.rank = 0});
    EXPECT_TRUE(torch::equal(matrix.t(), values));
  }
  // A message that differs is refused, and the one after it arrives.
  if (me == 0) {
    (void)error_of<FailedPrecondition>([&] { world.send(torch::ones({3}), {.rank = 1, .tag = 4}); });
    world.send(torch::ones({2}), {.rank = 1});
  }
  if (me == 1) {
    torch::Tensor wanted = torch::zeros({2});
    const std::string error = error_of<FailedPrecondition>([&] { world.recv(wanted, {.rank = 0}); });
    EXPECT_THAT(error, ::testing::AllOf(::testing::HasSubstr("a message does not match"),
                                        ::testing::HasSubstr("Float[2] with tag 0")));
    world.recv(wanted, {.rank = 0});
    EXPECT_TRUE(torch::equal(wanted, torch::ones({2})));
  }
}

// Operations that go on beside the caller: in order, with their results and errors.
inline void check_async(Communicator& world) {
  const int size = world.size();
  std::vector<torch::Tensor> sums;
  std::vector<Work<>> works;
  for (int i = 0; i < 10; ++i) {
    works.push_back(world.all_reduce_async({sums.emplace_back(torch::full({100 * i}, i))}, ReduceOp::kSum));
  }
  const auto parts = world.all_gather_async(torch::full({world.rank()}, 1.0));
  const auto piece = world.reduce_scatter_async(torch::ones({size, 2}), ReduceOp::kSum);
  const auto swapped =
      world.all_to_all_async(std::vector<torch::Tensor>(parts.wait().size(), torch::full({1}, world.rank())));
  const torch::Tensor copy = torch::full({2}, world.rank());
  const auto copied = world.broadcast_async({copy}, size - 1);
  // A synchronous one comes after all of them.
  torch::Tensor after = copy;
  world.all_reduce({&after, 1}, ReduceOp::kSum);
  EXPECT_TRUE(size == 1 || copied.done());
  EXPECT_TRUE(torch::equal(after, torch::full({2}, size * (size - 1))));
  for (int i = 9; i >= 0; --i) {
    works[static_cast<std::size_t>(i)].wait();
    EXPECT_TRUE(torch::equal(sums[static_cast<std::size_t>(i)], torch::full({100 * i}, i * size)));
  }
  for (int r = 0; r < size; ++r) {
    EXPECT_EQ(parts.wait()[static_cast<std::size_t>(r)].numel(), r);
    EXPECT_EQ(swapped.wait()[static_cast<std::size_t>(r)].item<int64_t>(), r);
  }
  EXPECT_TRUE(torch::equal(piece.wait(), torch::full({1, 2}, static_cast<float>(size))));
  const auto wrong = world.all_reduce_async({torch::Tensor()}, ReduceOp::kSum);
  if (size > 1) expect_error<InvalidArgument>([&] { wrong.wait(); }, "got an undefined one");
  (void)world.barrier_async();  // dropped: waited for at the end of the communicator
}

// Groups of some of the ranks, and groups of these.
inline void check_split(Communicator& world) {
  const int size = world.size();
  const int me = world.rank();
  const auto half = world.split(me % 2, -me);  // in reverse order
  std::vector<int> members;
  for (int r = size; r-- > 0;) {
    if (r % 2 == me % 2) members.push_back(r);
  }
  ASSERT_EQ(half->size(), static_cast<int>(members.size()));
  ASSERT_EQ(members[static_cast<std::size_t>(half->rank())], me);
  EXPECT_EQ(half->name(), world.name());
  const auto ranks = half->all_gather(torch::tensor(me));
  for (std::size_t r = 0; r < members.size(); ++r) EXPECT_EQ(ranks[r].item<int64_t>(), members[r]);
  torch::Tensor sum = torch::full({40'000}, me);
  // Both groups at once: the halves meanwhile do other things.
  const auto all = world.all_reduce_async({sum}, ReduceOp::kSum);
  torch::Tensor part = torch::ones({5});
  for (int i = 0; i <= me % 2; ++i) half->all_reduce({&part, 1}, ReduceOp::kSum);
  all.wait();
  EXPECT_EQ(part[0].item<double>(), std::pow(half->size(), 1 + me % 2));
  EXPECT_EQ(sum[39'999].item<int64_t>(), size * (size - 1) / 2);
  check_copies(*half);
  check_pieces(*half);
  check_messages(*half);

  const auto quarter = half->split(half->rank() / 2, 0);  // equal keys: in rank order
  ASSERT_EQ(quarter->size(), std::min(2, half->size() - half->rank() / 2 * 2));
  EXPECT_EQ(quarter->rank(), half->rank() % 2);
  quarter->barrier();

  const auto some = world.split(me == size - 1 ? 7 : -1, 0);
  ASSERT_EQ(some == nullptr, me != size - 1);
  if (some) {
    EXPECT_EQ(some->size(), 1);
  }
  world.barrier();
}

inline void check_wrong_calls(Communicator& world) {
  expect_error<InvalidArgument>([&] { (void)world.all_to_all(std::vector<torch::Tensor>(9, torch::ones({1}))); },
                                "9 parts came");
  std::vector<torch::Tensor> unlike(static_cast<std::size_t>(world.size()), torch::ones({1, 2}));
  unlike.back() = torch::ones({});
  expect_error<InvalidArgument>([&] { (void)world.all_to_all(unlike); }, "one shape but for dimension 0");
  expect_error<InvalidArgument>([&] { world.send(torch::ones({1}), {.rank = world.rank()}); }, "is not another one");
  expect_error<InvalidArgument>([&] { world.recv(torch::ones({1}), {.rank = -1}); }, "recv: rank -1");
  std::vector<torch::Tensor> undefined{torch::Tensor()};
  expect_error<InvalidArgument>([&] { world.all_reduce(undefined, ReduceOp::kSum); }, "got an undefined one");
  expect_error<InvalidArgument>([&] { world.broadcast({}, world.size()); }, "broadcast: root");
  expect_error<InvalidArgument>([&] { world.reduce_scatter(torch::ones({}), ReduceOp::kSum); }, "must be a multiple");
  expect_error<InvalidArgument>([&] { world.all_gather(torch::ones({2}).to_sparse()); },
                                "needs dense tensors, got Sparse");
}

// Checks that a trace has every operation as a span of the rank that waits for it. `with_two_ranks` calls its argument
// on two threads.
inline void check_spans(const std::function<void(const std::function<void(Communicator&)>&)>& with_two_ranks) {
  const TemporaryFolder folder;
  Trace trace({.file = folder / "trace.json"});
  with_two_ranks([](Communicator& world) {
    name_traced_thread("rank " + std::to_string(world.rank()));
    const Peer other{.rank = 1 - world.rank()};
    torch::Tensor tensor = torch::ones({2});
    world.all_reduce({&tensor, 1}, ReduceOp::kSum);
    world.broadcast({&tensor, 1}, 0);
    (void)world.all_gather(tensor);
    (void)world.reduce_scatter(tensor, ReduceOp::kSum);
    (void)world.all_to_all(std::vector<torch::Tensor>{tensor, tensor});
    world.barrier();
    const Work<> sent = world.send_async(tensor, other);
    world.recv(torch::empty({2}), other);
    sent.wait();
  });
  trace.finish();
  std::map<int64_t, std::string> threads;
  std::map<std::string, std::set<std::string>> spans;
  const nlohmann::json events = nlohmann::json::parse(read_file(folder / "trace.json")).at("traceEvents");
  for (const nlohmann::json& event : events) {
    if (event.at("name") == "thread_name") threads[event.at("tid")] = event.at("args").at("name");
  }
  for (const nlohmann::json& event : events) {
    if (event.at("ph") != "X") continue;
    EXPECT_EQ(event.at("cat"), "communication");
    spans[threads.at(event.at("tid"))].insert(event.at("name"));
  }
  for (const std::string rank : {"rank 0", "rank 1"}) {
    EXPECT_THAT(spans[rank], ::testing::UnorderedElementsAre("all_reduce", "broadcast", "all_gather", "reduce_scatter",
                                                             "all_to_all", "barrier", "recv", "wait for an operation"));
  }
  EXPECT_THAT(spans["communication"], ::testing::UnorderedElementsAre("send"));
}

}  // namespace cohort::testing
