#include "strategy/memory_use.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error_text.h"
#include "base/fail.h"

namespace cohort {

namespace {

// A use of memory, and what makes it smaller.
struct UseOfMemory {
  int64_t bytes = 0;
  std::string use;
  std::string help;
};

std::vector<UseOfMemory> rows_of(const MemoryUse& use) {
  const AllocatorFigures figures = use.allocator.value_or(AllocatorFigures{});
  const int64_t most = std::max(figures.peak, use.memory.peak);
  std::vector<UseOfMemory> rows = {
      {use.held.parameters, "parameters",
       "parameters in parts (sharding stage 3, --sharding_stage=3; a mesh with an axis model)"},
      {use.held.gradients, "gradients", "gradients in parts (sharding stage 2, --sharding_stage=2)"},
      {use.held.slots, "the optimizer's slots",
       "slots in parts (sharding stage 1, --sharding_stage=1), or a rule with fewer of them"},
      {use.held.staging, "batches ahead", "fewer batches ahead (InputOptions::prefetch_steps)"},
      {std::max<int64_t>(0, most - use.held.total()), "activations and temporary values, at most",
       "a smaller batch (with gradient_accumulation_steps for the same steps), mixed precision, activations computed "
       "again (remat)"}};
  if (use.allocator) {
    rows.push_back(
        {std::max<int64_t>(0, figures.reserved - figures.in_use), "free pieces that the allocator keeps",
         "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (LibTorch 2.1 and later), against pieces that are "
         "too small"});
    rows.push_back({std::max<int64_t>(0, use.memory.total - use.memory.available - figures.reserved),
                    "other programs and the driver", "a device that nobody else uses"});
  }
  return rows;
}

}  // namespace

HeldBytes& HeldBytes::operator+=(const HeldBytes& other) {
  parameters += other.parameters;
  gradients += other.gradients;
  slots += other.slots;
  staging += other.staging;
  return *this;
}

void MemoryHolders::add(const std::weak_ptr<const HoldsMemory>& holder) {
  const std::lock_guard lock(mutex_);
  std::erase_if(holders_, [](const auto& each) { return each.expired(); });
  holders_.push_back(holder);
}

HeldBytes MemoryHolders::held_bytes() const {
  const std::lock_guard lock(mutex_);
  HeldBytes all;
  for (const auto& each : holders_) {
    if (const auto holder = each.lock()) all += holder->held_bytes();
  }
  return all;
}

std::string bytes_text(int64_t bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB"};
  constexpr double kThousand = 1024.0;
  double number = static_cast<double>(bytes) / kThousand;
  std::size_t unit = 0;
  for (; unit + 1 < kUnits.size() && number >= kThousand; ++unit) number /= kThousand;
  return fmt::format("{:.1f} {}", number, kUnits[unit]);
}

std::string out_of_memory_text(const MemoryUse& use, const std::string& said) {
  std::vector<UseOfMemory> rows = rows_of(use);
  std::string text = fmt::format("[device] {} of {} has no memory left: {}\n  held by", use.device,
                                 bytes_text(use.memory.total), said);
  for (const UseOfMemory& row : rows) {
    if (row.bytes > 0) text += fmt::format("{} {} {}", text.ends_with("by") ? "" : ",", row.use, bytes_text(row.bytes));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const UseOfMemory& a, const UseOfMemory& b) { return a.bytes > b.bytes; });
  text += "\n  what would help:";
  // What holds little is not worth a sentence.
  constexpr int64_t kSmallPart = 10;
  for (const UseOfMemory& row : rows) {
    const bool counts = row.bytes > 0 && row.bytes >= rows.front().bytes / kSmallPart;
    if (counts) text += (text.ends_with(":") ? " " : "; ") + row.help;
  }
  return text;
}

std::vector<std::pair<std::string, double>> memory_logs(const std::vector<LogicalDevice>& devices) {
  std::optional<AllocatorFigures> most;
  for (const LogicalDevice& device : devices) {
    const auto own = backend_of(device.torch_device).allocator(device.torch_device);
    if (!own) continue;
    if (!most) most.emplace();
    most->in_use = std::max(most->in_use, own->in_use);
    most->peak = std::max(most->peak, own->peak);
    most->reserved = std::max(most->reserved, own->reserved);
  }
  if (!most) return {};
  constexpr double kGibibyte = 1 << 30;
  return {{"memory_in_use", static_cast<double>(most->in_use) / kGibibyte},
          {"memory_peak", static_cast<double>(most->peak) / kGibibyte},
          {"memory_reserved", static_cast<double>(most->reserved) / kGibibyte}};
}

void rethrow_explained(const c10::Error& error, const LogicalDevice& device, const MemoryHolders& holders) {
  const std::string said = error_text(error);
  if (said.find("does not have a deterministic implementation") != std::string::npos) {
    fail<Unimplemented>("[device] ComputeOptions::deterministic (--deterministic) is set, and on ",
                        device.torch_device.str(), " an operation has no form that repeats its bits: ", said);
  }
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) == nullptr) return;
  const DeviceBackend& backend = backend_of(device.torch_device);
  MemoryUse use{.device = device.name() + " (" + device.torch_device.str() + ")",
                .memory = {},
                .allocator = std::nullopt,
                .held = holders.held_bytes()};
  try {
    use.allocator = backend.allocator(device.torch_device);
    use.memory = backend.memory(device.torch_device);
  } catch (const c10::Error&) {  // even the figures want memory
    if (!use.allocator) return;
    use.memory.total = use.memory.available = use.allocator->reserved;
  }
  throw FailedPrecondition(out_of_memory_text(use, said));
}

}  // namespace cohort
