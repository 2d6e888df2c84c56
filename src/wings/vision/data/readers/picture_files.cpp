#include "wings/vision/data/readers/picture_files.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/fail.h"
#include "base/regular_file.h"

namespace cohort::datasets {

bool is_picture(const std::filesystem::path& file) {
  std::string extension = file.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  constexpr std::array kExtensions = {".jpg", ".jpeg", ".png"};
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
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
  const auto size = static_cast<int64_t>(std::filesystem::file_size(file, ignored));
  constexpr int64_t kMostBytesOfPixel = 16;  // PNG: 8, and what it takes to say that nothing could be compressed
  if (size / kMostBytesOfPixel > decode.most_pixels) {
    fail<DataLoss>("[data] ", file.string(), ": ", size, " bytes, wanted a picture of at most ", decode.most_pixels,
                   " pixels");
  }
  std::optional<std::string> bytes = read_regular_file(file, "data");
  if (!bytes) fail<NotFound>("[data] ", file.string(), ": there is no such file");
  return *std::move(bytes);
}

}  // namespace cohort::datasets
