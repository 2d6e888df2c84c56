#include "data/readers/picture_files.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "base/fail.h"
#include "data/readers/byte_source.h"
#include "device/host_random.h"

namespace cohort::datasets {

bool is_picture(const std::filesystem::path& file) {
  std::string extension = file.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  constexpr std::array kExtensions = {".jpg", ".jpeg", ".png"};
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

std::vector<std::filesystem::path> sorted_entries(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> list;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) list.push_back(entry.path());
  if (error) fail<NotFound>("[data] ", folder.string(), ": cannot be listed: ", error.message());
  std::sort(list.begin(), list.end());
  return list;
}

bool is_hidden(const std::filesystem::path& entry) {
  return entry.filename().native().starts_with('.');
}

std::vector<std::filesystem::path> pictures_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> pictures;
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : sorted_entries(folder)) {
    if (is_hidden(entry)) continue;
    if (is_picture(entry)) {
      pictures.push_back(entry);
    } else if (std::error_code ignored;
               std::filesystem::is_directory(std::filesystem::symlink_status(entry, ignored))) {
      folders.push_back(entry);
    }
  }
  for (const auto& inner : folders) {
    const std::vector<std::filesystem::path> deeper = pictures_in(inner);
    pictures.insert(pictures.end(), deeper.begin(), deeper.end());
  }
  return pictures;
}

std::string read_picture(const std::filesystem::path& file, const DecodeOptions& decode) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) {
    fail<DataLoss>("[data] ", file.string(), ": is ",
                   std::filesystem::exists(file, ignored) ? "no file" : "a link to nowhere", ", wanted a JPEG or PNG");
  }
  const auto source = open_bytes(file, Compression::kNone);
  const int64_t size = source->left().value_or(0);
  constexpr int64_t kMostBytesOfPixel = 16;  // PNG: 8, and what it takes to say that nothing could be compressed
  if (size / kMostBytesOfPixel > decode.most_pixels) {
    fail<DataLoss>("[data] ", file.string(), ": ", size, " bytes, wanted a picture of at most ", decode.most_pixels,
                   " pixels");
  }
  std::string bytes(static_cast<std::size_t>(size), '\0');
  bytes.resize(source->read(bytes.data(), bytes.size()));
  return bytes;
}

void require_held_out(const char* speaker, double part) {
  if (part >= 0.0 && part < 1.0) return;
  fail<InvalidArgument>("[data] ", speaker, ": held_out is ", part, ", wanted 0 or more and below 1");
}

HeldOut hold_out(int64_t count, double part, uint64_t seed) {
  const auto number = static_cast<int64_t>(std::llround(static_cast<double>(count) * part));
  const torch::Tensor order = at::randperm(count, make_host_generator(seed), torch::kLong);
  return {.train = std::get<0>(order.slice(0, number).sort()), .test = std::get<0>(order.slice(0, 0, number).sort())};
}

}  // namespace cohort::datasets
