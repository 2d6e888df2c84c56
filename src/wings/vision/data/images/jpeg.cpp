// JPEG, by libjpeg-turbo, which takes a pointer to the pixels of a CPU tensor.
#include <ATen/Functions.h>

#include <array>
#include <csetjmp>
#include <cstdio>

// This follows <cstdio>, which it does not include itself.
#include <jpeglib.h>

#include <jerror.h>

#include "base/fail.h"
#include "wings/vision/data/images/decode.h"

namespace cohort {

namespace {

// libjpeg ends a call by a jump, so that nothing with a destructor may stand between setjmp and it.
struct Failure {
  jpeg_error_mgr manager;
  std::jmp_buf jump;
  std::array<char, JMSG_LENGTH_MAX> message;
};

[[noreturn]] void give_up(j_common_ptr info) {
  auto* const failure = reinterpret_cast<Failure*>(info->err);
  info->err->format_message(info, failure->message.data());
  std::longjmp(failure->jump, 1);
}

// Bytes that are missing or make no sense are damage; what other cameras do to the letter of the standard is not.
void note_warning(j_common_ptr info, int level) {
  if (level >= 0) return;
  const int code = info->err->msg_code;
  if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE) give_up(info);
}

void say_nothing(j_common_ptr /*info*/) {}

class JpegDecoder {
 public:
  JpegDecoder(std::string_view bytes, const DecodeOptions& options, const std::string& source)
      : bytes_(bytes), options_(options), source_(source) {
    info_.err = jpeg_std_error(&failure_.manager);
    failure_.manager.error_exit = give_up;
    failure_.manager.emit_message = note_warning;
    failure_.manager.output_message = say_nothing;
    if (setjmp(failure_.jump) != 0) fail<Internal>("[image] libjpeg does not start: ", failure_.message.data());
    jpeg_create_decompress(&info_);
  }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }

  torch::Tensor operator()() {
    if (!read_header()) refuse();
    images::check_size(info_.image_height, info_.image_width, options_, source_);
    choose();
    if (!start()) refuse();
    const auto height = static_cast<int64_t>(info_.output_height);
    const auto width = static_cast<int64_t>(info_.output_width);
    const auto stored = static_cast<int64_t>(info_.output_components);
    torch::Tensor pixels = at::empty({height, width, stored}, torch::kByte);
    if (!read_pixels(pixels.data_ptr<uint8_t>())) refuse();
    if (stored == 4) pixels = from_cmyk(pixels);
    return options_.upright ? images::turn_upright(pixels.permute({2, 0, 1}), orientation_) : pixels.permute({2, 0, 1});
  }

 private:
  bool read_header() {
    if (setjmp(failure_.jump) != 0) return false;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size());
    jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xFFFF);
    jpeg_read_header(&info_, TRUE);
    for (jpeg_saved_marker_ptr marker = info_.marker_list; marker != nullptr; marker = marker->next) {
      if (marker->marker != JPEG_APP0 + 1) continue;
      const int found = images::orientation_in({reinterpret_cast<const char*>(marker->data), marker->data_length});
      if (found != 1) orientation_ = found;
    }
    return true;
  }

  void choose() {
    const bool cmyk = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    const bool grey = info_.jpeg_color_space == JCS_GRAYSCALE;
    if (cmyk) {
      info_.out_color_space = JCS_CMYK;
    } else {
      info_.out_color_space = options_.channels == 1 || (options_.channels == 0 && grey) ? JCS_GRAYSCALE : JCS_RGB;
    }
    if (options_.at_least == 0) return;
    info_.scale_num = 1;
    for (info_.scale_denom = 8; info_.scale_denom > 1; info_.scale_denom /= 2) {
      const auto side = static_cast<int64_t>(std::min(info_.image_height, info_.image_width));
      if (side >= options_.at_least * info_.scale_denom) break;
    }
  }

  bool start() {
    if (setjmp(failure_.jump) != 0) return false;
    jpeg_start_decompress(&info_);
    return true;
  }

  bool read_pixels(uint8_t* to) {
    if (setjmp(failure_.jump) != 0) return false;
    const std::size_t row = static_cast<std::size_t>(info_.output_width) * info_.output_components;
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW line = to + info_.output_scanline * row;
      jpeg_read_scanlines(&info_, &line, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  // Adobe's programs, which make such files, store the inks inverted.
  torch::Tensor from_cmyk(const torch::Tensor& pixels) const {
    const torch::Tensor inks = pixels.to(torch::kShort);
    const torch::Tensor light = info_.saw_Adobe_marker != 0 ? inks : 255 - inks;
    torch::Tensor rgb = (light.slice(2, 0, 3) * light.slice(2, 3, 4) + 127).div(255, "floor").to(torch::kByte);
    if (options_.channels != 1) return rgb;
    const torch::Tensor weights = at::tensor({0.299F, 0.587F, 0.114F});
    return (rgb.to(torch::kFloat) * weights).sum(2, /*keepdim=*/true).round().to(torch::kByte);
  }

  [[noreturn]] void refuse() const {
    fail<DataLoss>("[image] ", source_, ": the JPEG is damaged: ", failure_.message.data());
  }

  std::string_view bytes_;
  const DecodeOptions& options_;
  const std::string& source_;
  jpeg_decompress_struct info_{};
  Failure failure_{};
  int orientation_ = 1;
};

}  // namespace

torch::Tensor decode_jpeg(std::string_view bytes, const DecodeOptions& options, const std::string& source) {
  images::check_options(options);
  if (!images::is_jpeg(bytes)) fail<DataLoss>("[image] ", source, ": no JPEG (", bytes.size(), " bytes)");
  return JpegDecoder(bytes, options, source)();
}

}  // namespace cohort
