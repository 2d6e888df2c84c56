// MNIST from its four IDX files.
#include <ATen/Functions.h>

#include "base/fail.h"
#include "cohort/data/datasets.h"

namespace cohort::datasets {

namespace {

// Returns the path of the file, which may have one of its usual names.
std::filesystem::path find_file(const std::filesystem::path& folder, const std::string& stem, const std::string& kind) {
  for (const char* separator : {"-", "."}) {
    for (const char* suffix : {"", ".gz"}) {
      std::filesystem::path file = (folder / stem) += separator + kind + suffix;
      if (std::filesystem::exists(file)) return file;
    }
  }
  fail<NotFound>("[data] mnist: ", folder.string(), " has no ", stem, "-", kind, " (also looked for .gz and ", stem,
                 ".", kind, ")");
}

Dataset load(const std::filesystem::path& folder, const std::string& part) {
  const auto image_file = find_file(folder, part + "-images", "idx3-ubyte");
  const auto label_file = find_file(folder, part + "-labels", "idx1-ubyte");
  const torch::Tensor images = read_idx(image_file);
  const torch::Tensor labels = read_idx(label_file);
  if (images.dim() != 3 || images.size(1) != 28 || images.size(2) != 28 || images.scalar_type() != torch::kByte) {
    fail<DataLoss>("[data] ", image_file.string(), ": holds ", images.scalar_type(), images.sizes(),
                   ", wanted bytes of shape [n, 28, 28]");
  }
  if (labels.dim() != 1 || labels.scalar_type() != torch::kByte || labels.size(0) != images.size(0)) {
    fail<DataLoss>("[data] ", label_file.string(), ": holds ", labels.scalar_type(), labels.sizes(),
                   ", wanted a byte for each of the ", images.size(0), " images");
  }
  if (labels.numel() > 0 && labels.max().item<int64_t>() > 9) {
    const auto record = labels.argmax().item<int64_t>();
    fail<DataLoss>("[data] ", label_file.string(), ": record ", record, " holds the label ",
                   labels[record].item<int64_t>(), ", wanted 0 to 9");
  }
  return Dataset::from_tensor_slices(images.to(torch::kFloat).div_(255.0), labels.to(torch::kLong));
}

}  // namespace

TrainTest mnist(const std::filesystem::path& folder) {
  return {load(folder, "train"), load(folder, "t10k")};
}

}  // namespace cohort::datasets
