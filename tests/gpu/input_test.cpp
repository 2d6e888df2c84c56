// Input on its way to cards.
#include <torch/torch.h>

#include "cohort/cohort.h"
#include "tests/gpu/cards.h"

namespace cohort::input_test {
namespace {

using namespace gpu;

TEST(Input, PagesAreLockedForAsManyStepsAsAreAhead) {
  COHORT_NEEDS_CARDS(2);
  const Strategy strategy = MirroredStrategy({.devices = on_cards(2)});
  constexpr int64_t kRows = 38;  // ten steps, the last one short
  const torch::Tensor x = torch::arange(kRows, torch::kFloat).view({kRows, 1});
  const Dataset numbers = Dataset::from_tensor_slices(x, x.to(torch::kLong)).batch(4);
  for (const int64_t ahead : {0, 1, 3}) {
    const int64_t locks = page_locks();
    const int64_t waits = synchronisations();
    std::vector<torch::Tensor> seen;
    for (const GlobalBatch& batch : strategy.distribute(numbers, {.prefetch_steps = ahead})) {
      for (std::size_t r = 0; r < 2; ++r) seen.push_back(batch[r].x + batch[r].y.view({-1, 1}));
    }
    EXPECT_EQ(synchronisations(), waits);
    if (stands_in()) {
      EXPECT_EQ(page_locks() - locks, 2 * std::max<int64_t>(ahead, 1));
    }
    std::vector<torch::Tensor> values;
    for (const torch::Tensor& each : seen) values.push_back(each.cpu());
    EXPECT_TRUE(torch::equal(torch::cat(values), 2 * x)) << ahead;
  }
}

}  // namespace
}  // namespace cohort::input_test
