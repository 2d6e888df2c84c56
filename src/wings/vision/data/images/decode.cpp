#include "wings/vision/data/images/decode.h"

#include <ATen/Functions.h>

#include "base/fail.h"

namespace cohort {

namespace images {

void check_options(const DecodeOptions& options) {
  if (options.channels != 0 && options.channels != 1 && options.channels != 3) {
    fail<InvalidArgument>("[image] channels is ", options.channels, ", wanted 0, 1 or 3");
  }
  if (options.at_least < 0) fail<InvalidArgument>("[image] at_least is ", options.at_least, ", wanted 0 or more");
}

void check_size(int64_t height, int64_t width, const DecodeOptions& options, const std::string& source) {
  if (height > 0 && width > 0 && height <= options.most_pixels / width) return;
  fail<InvalidArgument>("[image] ", source, ": ", width, " x ", height, " pixels, wanted at least one and at most ",
                        options.most_pixels);
}

bool is_jpeg(std::string_view bytes) {
  return bytes.starts_with("\xff\xd8\xff");
}
bool is_png(std::string_view bytes) {
  return bytes.starts_with("\x89PNG\r\n\x1a\n");
}

namespace {

// Numbers of a TIFF block, in its byte order; 0 beyond its end.
class Tiff {
 public:
  explicit Tiff(std::string_view bytes) : bytes_(bytes), little_(bytes.starts_with("II")) {}
  bool valid() const { return (little_ || bytes_.starts_with("MM")) && number(2, 2) == 42; }
  uint32_t number(std::size_t at, std::size_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) return 0;
    uint32_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t place = little_ ? at + size - 1 - i : at + i;
      value = value << 8 | static_cast<unsigned char>(bytes_[place]);
    }
    return value;
  }

 private:
  std::string_view bytes_;
  bool little_;
};

}  // namespace

int orientation_in(std::string_view exif) {
  constexpr std::string_view kMark("Exif\0\0", 6);
  constexpr uint32_t kOrientation = 0x0112;
  constexpr uint32_t kShort = 3;
  constexpr std::size_t kEntry = 12;
  if (!exif.starts_with(kMark)) return 1;
  const Tiff tiff(exif.substr(kMark.size()));
  if (!tiff.valid()) return 1;
  const std::size_t directory = tiff.number(4, 4);
  const uint32_t entries = tiff.number(directory, 2);
  for (uint32_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + i * kEntry;
    if (tiff.number(entry, 2) != kOrientation || tiff.number(entry + 2, 2) != kShort) continue;
    const uint32_t value = tiff.number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

torch::Tensor turn_upright(const torch::Tensor& image, int orientation) {
  constexpr int64_t kRows = 1;
  constexpr int64_t kColumns = 2;
  torch::Tensor turned = image;
  if (orientation >= 5) turned = turned.transpose(kRows, kColumns);
  // Of the transposed orientations 5 is right already, and the others are flipped as their counterparts are.
  std::vector<int64_t> flipped;
  if (orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8) flipped.push_back(kRows);
  if (orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7) flipped.push_back(kColumns);
  if (!flipped.empty()) turned = turned.flip(flipped);
  // The channels of a pixel lie together again.
  return turned.permute({1, 2, 0}).contiguous().permute({2, 0, 1});
}

}  // namespace images

torch::Tensor decode_image(std::string_view bytes, const DecodeOptions& options, const std::string& source) {
  if (images::is_jpeg(bytes)) return decode_jpeg(bytes, options, source);
  if (images::is_png(bytes)) return decode_png(bytes, options, source);
  fail<DataLoss>("[image] ", source, ": neither a JPEG nor a PNG (", bytes.size(), " bytes)");
}

}  // namespace cohort
