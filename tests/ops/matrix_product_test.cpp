#include "ops/matrix_product.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sys/time.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <limits>

#include "base/cpu_threads.h"
#include "base/deadline.h"

namespace cohort {
namespace {

// Returns a matrix whose rows, or columns, lie in longer ones.
torch::Tensor part_of_larger(int64_t rows, int64_t columns, bool by_columns, torch::Dtype dtype) {
  if (by_columns) return part_of_larger(columns, rows, false, dtype).t();
  return torch::randn({rows, columns + 3}, dtype).narrow(1, 2, columns);
}

TEST(MatrixProduct, OfRowsColumnsAndParts) {
  torch::manual_seed(4);
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {1, 5, 3}, {5, 1, 1}, {4, 3, 1}, {70, 33, 129}}) {
    for (const torch::Dtype dtype : {torch::kFloat, torch::kDouble}) {
      const double room = dtype == torch::kFloat ? 1e-4 : 1e-12;
      for (const bool a_by_columns : {false, true}) {
        for (const bool b_by_columns : {false, true}) {
          const torch::Tensor a = part_of_larger(m, k, a_by_columns, dtype);
          const torch::Tensor b = part_of_larger(k, n, b_by_columns, dtype);
          const torch::Tensor wanted = torch::mm(a.to(torch::kDouble), b.to(torch::kDouble)).to(dtype);
          const torch::Tensor all = torch::full({m, n + 2}, std::numeric_limits<double>::quiet_NaN(), dtype);
          const torch::Tensor result = all.narrow(1, 1, n);
          store_product(result, a, b);
          EXPECT_TRUE(torch::allclose(result, wanted, room, room)) << m << " " << n << " " << k << " " << dtype;
          add_product(result, a, b);
          EXPECT_TRUE(torch::allclose(result, 2 * wanted, room, room)) << m << " " << n << " " << k << " " << dtype;
          EXPECT_EQ(all.isnan().sum().item<int64_t>(), 2 * m) << "nothing beside the result";
        }
      }
    }
  }
}

TEST(MatrixProduct, HasTheSameBitsEachTime) {
  torch::manual_seed(5);
  const torch::Tensor a = torch::randn({64, 784}), b = torch::randn({784, 256});
  for (const int threads : {1, 2}) {
    const IntraOpThreads scope(threads);
    const torch::Tensor first = torch::empty({64, 256}), second = torch::empty({64, 256});
    store_product(first, a, b);
    store_product(second, a, b);
    EXPECT_TRUE(torch::equal(first, second)) << threads;
  }
}

TEST(MatrixProduct, InPiecesOfRows) {
  torch::manual_seed(6);
  const torch::Tensor a = torch::randn({200, 3000}), b = torch::randn({3000, 2000});
  const torch::Tensor result = torch::empty({200, 2000});
  store_product(result, a, b);
  EXPECT_TRUE(torch::allclose(result, torch::mm(a, b), 1e-3, 1e-3));
  store_product(result.narrow(0, 0, 150), a.t().contiguous().t().narrow(0, 50, 150), b);
  EXPECT_TRUE(torch::allclose(result.narrow(0, 0, 150), torch::mm(a.narrow(0, 50, 150), b), 1e-3, 1e-3));
}

TEST(MatrixProduct, OfRowsPagesApart) {
  torch::manual_seed(7);
  const torch::Tensor a = torch::randn({70, 1024}).t(), b = torch::randn({70, 9}), result = torch::empty({1024, 9});
  store_product(result, a, b);
  EXPECT_TRUE(torch::allclose(result, torch::mm(a, b), 1e-4, 1e-4));
}

// oneDNN's kernels keep a buffer at the stack pointer, where the handler's frame would lie.
TEST(MatrixProduct, BesideSignals) {
  static std::atomic<int> signals;
  struct sigaction action {};
  action.sa_handler = [](int) { ++signals; };
  action.sa_flags = SA_RESTART;
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGALRM, &action, &before), 0);
  const itimerval often{.it_interval = {.tv_sec = 0, .tv_usec = 200}, .it_value = {.tv_sec = 0, .tv_usec = 200}};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  const torch::Tensor a = torch::ones({64, 128}), b = torch::ones({128, 256});
  const Deadline end(std::chrono::seconds(20));
  for (signals = 0; signals < 200 && !end.passed();) {
    const torch::Tensor result = torch::empty({64, 256});
    store_product(result, a, b);
    ASSERT_TRUE(result.eq(128).all().item<bool>());
  }
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  EXPECT_GE(signals, 200);
}

TEST(MatrixProduct, KeepsWhatIsNotFinite) {
  const torch::Tensor a = torch::ones({2, 3}), b = torch::ones({3, 2}), result = torch::zeros({2, 2});
  b[1][0] = std::numeric_limits<float>::infinity();
  a[0][1] = 0;
  store_product(result, a, b);
  EXPECT_TRUE(result[0][0].isnan().item<bool>()) << "0 times infinity";
  EXPECT_TRUE(result[1][0].isinf().item<bool>());
  EXPECT_EQ(result[1][1].item<float>(), 3.0F);
}

}  // namespace
}  // namespace cohort
