// Input on its way to cards.
#include <torch/torch.h>

#include "cohort/cohort.h"
#include "data/node.h"
#include "tests/gpu/cards.h"

namespace cohort::input_test {
namespace {

using namespace gpu;

TEST(Input, PagesAreLockedForAsManyStepsAsAreAhead) {
  COHORT_NEEDS_PLACES(2);
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

// Pictures of 20 x 18 in batches of 5, cropped, flipped and normalised; the last batch is short.
Dataset pictures() {
  const torch::Tensor x = torch::arange(13 * 3 * 20 * 18).view({13, 3, 20, 18}).remainder(251).to(torch::kByte);
  const Dataset all = Dataset::from_tensor_slices(x, torch::arange(13));
  const DeviceImages images({.crop = DeviceCrop{16, 18, {.padding = 2, .padding_mode = PaddingMode::kReflect}},
                             .flip_probability = 0.5,
                             .mean = {0.4, 0.5, 0.6},
                             .deviation = {0.2, 0.3, 0.4}});
  return images.finish(all.random_map(images, {.seed = 3}).batch(5));
}

TEST(Input, PicturesThatAreChangedOnCardsHaveTheBitsOfTheHost) {
  COHORT_NEEDS_CARDS(1);
  const Strategy strategy = OneDeviceStrategy(on_cards(1)[0]);
  const int64_t waits = synchronisations();
  std::vector<torch::Tensor> seen;
  for (const GlobalBatch& batch : strategy.distribute(pictures())) seen.push_back(batch[0].x);
  EXPECT_EQ(synchronisations(), waits);
  Iterator wanted = pictures().iterator();
  for (const torch::Tensor& x : seen) {
    EXPECT_FALSE(x.is_cpu());
    EXPECT_TRUE(torch::equal(x.cpu(), wanted.next()->x));
  }
  EXPECT_FALSE(wanted.next());
}

// By LibTorch's operations, as in a build that has no kernels for cards.
TEST(Input, PicturesThatOperationsChangeHaveTheSameBits) {
  COHORT_NEEDS_CARDS(1);
  const torch::Device card = find_logical_device(on_cards(1)[0]).torch_device;
  const LeftToDevices work = pictures().node()->left_to_devices();
  ASSERT_NE(work.map, nullptr);
  const Dataset bytes(work.batches);
  Iterator wanted = pictures().iterator();
  for (const Example& batch : bytes) {
    const torch::Tensor x = (*work.map)(batch.to(card), kernels::Reach::kNone).x;
    EXPECT_EQ(x.device(), card);
    EXPECT_TRUE(torch::equal(x.cpu(), wanted.next()->x));
  }
}

}  // namespace
}  // namespace cohort::input_test
