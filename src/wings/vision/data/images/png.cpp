// PNG, by libpng, which takes pointers to the rows of a CPU tensor.
#include <ATen/Functions.h>
#include <png.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/fail.h"
#include "wings/vision/data/images/decode.h"
#include "wings/vision/data/images/require.h"

namespace cohort {

namespace {

// libpng ends a call by a jump, so that nothing with a destructor may stand between setjmp and it.
class PngDecoder {
 public:
  PngDecoder(std::string_view bytes, const DecodeOptions& options, const std::string& source)
      : bytes_(bytes), options_(options), source_(source) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, note_error, say_nothing);
    info_ = png_ != nullptr ? png_create_info_struct(png_) : nullptr;
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      fail<Internal>("[image] libpng does not start");
    }
  }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }

  torch::Tensor operator()() {
    if (!read_header()) refuse();
    const auto height = static_cast<int64_t>(png_get_image_height(png_, info_));
    const auto width = static_cast<int64_t>(png_get_image_width(png_, info_));
    images::check_size(height, width, options_, source_);
    if (!choose()) refuse();
    const auto stored = static_cast<int64_t>(png_get_channels(png_, info_));
    torch::Tensor pixels = at::empty({height, width, stored}, torch::kByte);
    rows_.resize(static_cast<std::size_t>(height));
    for (int64_t y = 0; y < height; ++y) {
      rows_[static_cast<std::size_t>(y)] = pixels.data_ptr<uint8_t>() + y * width * stored;
    }
    if (!read_pixels()) refuse();
    if (options_.channels == 1 && stored == 3) pixels = brightness(pixels);
    return pixels.permute({2, 0, 1});
  }

 private:
  // Returns the brightness of RGB pixels with Pillow's numbers. libpng's would depend on the gamma that a file
  // announces.
  static torch::Tensor brightness(const torch::Tensor& pixels) {
    torch::Tensor grey = at::empty({pixels.size(0), pixels.size(1), 1}, torch::kByte);
    const uint8_t* from = pixels.data_ptr<uint8_t>();
    auto* const to = grey.data_ptr<uint8_t>();
    for (int64_t i = 0; i < grey.numel(); ++i, from += 3) {
      to[i] = static_cast<uint8_t>((from[0] * 19595U + from[1] * 38470U + from[2] * 7471U + 0x8000U) >> 16);
    }
    return grey;
  }

  static void note_error(png_structp png, png_const_charp message) {
    auto* const self = static_cast<PngDecoder*>(png_get_error_ptr(png));
    std::snprintf(self->message_, sizeof self->message_, "%s", message);
    png_longjmp(png, 1);
  }
  static void say_nothing(png_structp /*png*/, png_const_charp /*message*/) {}

  static void give(png_structp png, png_bytep to, png_size_t size) {
    auto* const self = static_cast<PngDecoder*>(png_get_io_ptr(png));
    if (size > self->bytes_.size() - self->at_) png_error(png, "the file ends too early");
    std::memcpy(to, self->bytes_.data() + self->at_, size);
    self->at_ += size;
  }

  bool read_header() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, give);
    png_read_info(png_, info_);
    return true;
  }

  bool choose() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    const int type = png_get_color_type(png_, info_);
    const bool grey = (type & PNG_COLOR_MASK_COLOR) == 0;
    png_set_expand(png_);  // palettes, and fewer than 8 bits
    png_set_strip_16(png_);
    png_set_strip_alpha(png_);
    if (options_.channels == 3 && grey) png_set_gray_to_rgb(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  bool read_pixels() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_image(png_, rows_.data());
    png_read_end(png_, nullptr);
    return true;
  }

  [[noreturn]] void refuse() const {
    fail<DataLoss>("[image] ", source_, ": the PNG is damaged at byte ", at_, " of ", bytes_.size(), ": ", message_);
  }

  std::string_view bytes_;
  const DecodeOptions& options_;
  const std::string& source_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::vector<png_bytep> rows_;
  std::size_t at_ = 0;
  char message_[128] = "";
};

}  // namespace

torch::Tensor decode_png(std::string_view bytes, const DecodeOptions& options, const std::string& source) {
  images::check_options(options);
  if (!images::is_png(bytes)) fail<DataLoss>("[image] ", source, ": no PNG (", bytes.size(), " bytes)");
  return PngDecoder(bytes, options, source)();
}

std::string encode_png(const torch::Tensor& image) {
  images::require_image("encode_png", image);
  const int64_t channels = image.size(0);
  if (image.scalar_type() != torch::kByte || (channels != 1 && channels != 3)) {
    fail<InvalidArgument>("[image] encode_png: wanted uint8 of 1 or 3 channels, got ", image.scalar_type(),
                          image.sizes());
  }
  const torch::Tensor pixels = image.cpu().permute({1, 2, 0}).contiguous();
  png_image head{};
  head.version = PNG_IMAGE_VERSION;
  head.height = static_cast<png_uint_32>(image.size(1));
  head.width = static_cast<png_uint_32>(image.size(2));
  head.format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(head);
  std::string bytes(size, '\0');
  if (png_image_write_to_memory(&head, bytes.data(), &size, 0, pixels.data_ptr(), 0, nullptr) == 0) {
    fail<Internal>("[image] encode_png: ", head.message);
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace cohort
