// CIFAR-10 from its binary files: records of a label and 3 x 32 x 32 bytes, copied to where
// a pointer into a CPU tensor leads.
#include <ATen/Functions.h>

#include <cstring>

#include "base/fail.h"
#include "base/regular_file.h"
#include "cohort/data/datasets.h"

namespace cohort::datasets {

namespace {

constexpr int64_t kPixels = 3 * 32 * 32;
constexpr int64_t kRecord = 1 + kPixels;

// Returns the records of a file, uint8 of shape [records, kRecord].
torch::Tensor read_records(const std::filesystem::path& file) {
  const std::optional<std::string> bytes = read_regular_file(file, "data");
  if (!bytes) fail<NotFound>("[data] ", file.string(), ": there is no such file");
  const auto size = static_cast<int64_t>(bytes->size());
  if (size == 0 || size % kRecord != 0) {
    fail<DataLoss>("[data] ", file.string(), ": has ", size, " bytes, wanted some records of ", kRecord);
  }
  torch::Tensor records = at::empty({size / kRecord, kRecord}, torch::kByte);
  std::memcpy(records.data_ptr(), bytes->data(), bytes->size());
  const auto [label, at] = records.select(1, 0).max(0);
  if (label.item<int64_t>() > 9) {
    fail<DataLoss>("[data] ", file.string(), ": at byte ", at.item<int64_t>() * kRecord, ": holds the label ",
                   label.item<int64_t>(), ", wanted 0 to 9");
  }
  return records;
}

Dataset load(const std::vector<std::filesystem::path>& files) {
  std::vector<torch::Tensor> parts;
  for (const auto& file : files) parts.push_back(read_records(file));
  const torch::Tensor records = at::cat(parts);
  return Dataset::from_tensor_slices(records.slice(1, 1).reshape({-1, 3, 32, 32}),
                                     records.select(1, 0).to(torch::kLong));
}

}  // namespace

TrainTest cifar10(const std::filesystem::path& folder) {
  const auto below = folder / "cifar-10-batches-bin";
  const auto& home = std::filesystem::exists(below) ? below : folder;
  std::vector<std::filesystem::path> files;
  for (int i = 1; i <= 5; ++i) files.push_back(home / ("data_batch_" + std::to_string(i) + ".bin"));
  return {load(files), load({home / "test_batch.bin"})};
}

}  // namespace cohort::datasets
