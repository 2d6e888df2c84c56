#include "strategy/memory_use.h"

#include <gtest/gtest.h>

namespace cohort::memory_use_test {
namespace {

constexpr int64_t kGibibyte = int64_t{1} << 30;

TEST(MemoryUse, SaysWhoHoldsWhatAndWhatHelpsMostFirst) {
  const MemoryUse use{
      .device = "/GPU:0 (cuda:0)",
      .memory = {.total = 80 * kGibibyte, .available = kGibibyte},
      .allocator = AllocatorFigures{.in_use = 50 * kGibibyte, .peak = 60 * kGibibyte, .reserved = 64 * kGibibyte},
      .held = {.parameters = 4 * kGibibyte, .gradients = 4 * kGibibyte, .slots = 8 * kGibibyte}};
  EXPECT_EQ(out_of_memory_text(use, "[libtorch] CUDA out of memory."),
            "[device] /GPU:0 (cuda:0) of 80.0 GiB has no memory left: [libtorch] CUDA out of memory.\n"
            "  held by parameters 4.0 GiB, gradients 4.0 GiB, the optimizer's slots 8.0 GiB, activations and temporary "
            "values, at most 44.0 GiB, free pieces that the allocator keeps 14.0 GiB, other programs and the driver "
            "15.0 GiB\n"
            "  what would help: a smaller batch (with gradient_accumulation_steps for the same steps), mixed "
            "precision, activations computed again (remat); a device that nobody else uses; "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (LibTorch 2.1 and later), against pieces that are too "
            "small; slots in parts (sharding stage 1, --sharding_stage=1), or a rule with fewer of them");
}

TEST(MemoryUse, HoldersCountAsLongAsTheyLive) {
  class Holder final : public HoldsMemory {
   public:
    HeldBytes held_bytes() const override { return {.parameters = 1, .gradients = 2, .slots = 3, .staging = 4}; }
  };
  MemoryHolders holders;
  const auto first = std::make_shared<Holder>();
  holders.add(std::weak_ptr<const HoldsMemory>(first));
  {
    const auto second = std::make_shared<Holder>();
    holders.add(std::weak_ptr<const HoldsMemory>(second));
    EXPECT_EQ(holders.held_bytes().total(), 20);
  }
  EXPECT_EQ(holders.held_bytes().total(), 10);
}

TEST(MemoryUse, BytesAreReadable) {
  EXPECT_EQ(bytes_text(512), "0.5 KiB");
  EXPECT_EQ(bytes_text(17 << 20), "17.0 MiB");
  EXPECT_EQ(bytes_text(5000 * kGibibyte), "5000.0 GiB");
}

}  // namespace
}  // namespace cohort::memory_use_test
