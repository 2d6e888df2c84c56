#include "cohort/data/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jpeglib.h>
#include <png.h>
#include <torch/types.h>
#include <zlib.h>

#include <cstdlib>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "wings/vision/data/images/decode.h"

namespace cohort::image_test {
namespace {

using testing::expect_error;

// Soft enough to survive JPEG: uint8 [height, width, channels].
torch::Tensor drawing(int64_t height, int64_t width, int64_t channels) {
  const torch::Tensor y = torch::arange(height).view({-1, 1, 1}) * 200.0 / static_cast<double>(height);
  const torch::Tensor x = torch::arange(width).view({1, -1, 1}) * 50.0 / static_cast<double>(width);
  return (y + x + torch::arange(channels).view({1, 1, -1}) * 2.0).to(torch::kByte).contiguous();
}

std::string jpeg_of(const torch::Tensor& pixels, J_COLOR_SPACE space, const std::string& exif = {}) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): libjpeg's
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_height = static_cast<JDIMENSION>(pixels.size(0));
  info.image_width = static_cast<JDIMENSION>(pixels.size(1));
  info.input_components = static_cast<int>(pixels.size(2));
  info.in_color_space = space;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 98, TRUE);
  jpeg_start_compress(&info, TRUE);
  if (!exif.empty()) {
    jpeg_write_marker(&info, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(exif.data()),
                      static_cast<unsigned>(exif.size()));
  }
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = pixels.data_ptr<uint8_t>() + info.next_scanline * pixels.size(1) * pixels.size(2);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string result(reinterpret_cast<char*>(bytes), size);
  std::free(bytes);  // NOLINT(cppcoreguidelines-no-malloc): libjpeg's
  return result;
}

std::string png_of(const torch::Tensor& pixels, uint32_t format) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(pixels.size(0));
  image.width = static_cast<png_uint_32>(pixels.size(1));
  image.format = format;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data_ptr(), 0, nullptr);
  std::string bytes(size, '\0');
  EXPECT_NE(png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data_ptr(), 0, nullptr), 0);
  bytes.resize(size);
  return bytes;
}

std::string exif_of(int orientation, bool little) {
  std::string tiff = little ? std::string("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 18)
                            : std::string("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01", 18);
  tiff += little ? std::string{static_cast<char>(orientation), 0, 0, 0}
                 : std::string{0, static_cast<char>(orientation), 0, 0};
  return std::string("Exif\0\0", 6) + tiff;
}

int64_t largest_difference(const torch::Tensor& a, const torch::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return (a.to(torch::kLong) - b.to(torch::kLong)).abs().max().item<int64_t>();
}

TEST(Image, PngsAreDecodedExactly) {
  const torch::Tensor rgb = drawing(37, 53, 3);
  const torch::Tensor wanted = rgb.permute({2, 0, 1});
  const torch::Tensor got = decode_image(png_of(rgb, PNG_FORMAT_RGB));
  EXPECT_TRUE(torch::equal(got, wanted));
  EXPECT_EQ(got.stride(0), 1) << "the channels of a pixel lie together";
  const torch::Tensor with_alpha = torch::cat({rgb, torch::full({37, 53, 1}, 7, torch::kByte)}, 2);
  EXPECT_TRUE(torch::equal(decode_png(png_of(with_alpha, PNG_FORMAT_RGBA)), wanted)) << "transparency is left out";

  const torch::Tensor grey = drawing(20, 30, 1);
  const std::string bytes = png_of(grey, PNG_FORMAT_GRAY);
  EXPECT_TRUE(torch::equal(decode_png(bytes), grey.permute({2, 0, 1}).expand({3, -1, -1})));
  EXPECT_TRUE(torch::equal(decode_png(bytes, {.channels = 0}), grey.permute({2, 0, 1})));
  EXPECT_TRUE(torch::equal(decode_png(bytes, {.channels = 1}), grey.permute({2, 0, 1})));
  EXPECT_EQ(decode_png(png_of(rgb, PNG_FORMAT_RGB), {.channels = 1}).size(0), 1);
}

// Adds a chunk behind the header of a PNG.
std::string with_chunk(const std::string& png, const std::string& type, const std::string& data) {
  const auto number = [](uLong value) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
    return bytes;
  };
  const std::string body = type + data;
  const uLong crc = crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  std::string made = png;
  return made.insert(8 + 25, number(data.size()) + body + number(crc));  // the signature and the header
}

// TensorFlow and Pillow leave gamma alone: brightness is 0.299 R + 0.587 G + 0.114 B of the values as they are.
TEST(Image, BrightnessDoesNotDependOnGamma) {
  const torch::Tensor rgb = torch::tensor({200, 30, 30, 30, 200, 30, 30, 30, 200}, torch::kByte).view({1, 3, 3});
  const torch::Tensor wanted = torch::tensor({81, 130, 49}, torch::kByte).view({1, 1, 3});
  const std::string chunk_of_gamma("\0\0\xb1\x8f", 4);  // 1 / 2.2
  std::string plain = png_of(rgb, PNG_FORMAT_RGB);
  for (const char* chunk : {"sRGB", "gAMA"}) {  // what libpng itself has written
    const std::size_t at = plain.find(chunk);
    if (at != std::string::npos) plain.erase(at - 4, 12 + (std::string(chunk) == "sRGB" ? 1 : 4));
  }
  for (const std::string& bytes :
       {plain, with_chunk(plain, "gAMA", chunk_of_gamma), with_chunk(plain, "sRGB", std::string(1, '\0'))}) {
    EXPECT_LE(largest_difference(decode_png(bytes, {.channels = 1}), wanted), 0) << bytes.size() << " bytes";
    EXPECT_TRUE(torch::equal(decode_png(bytes), rgb.permute({2, 0, 1})));
  }
}

TEST(Image, JpegsAreDecoded) {
  const torch::Tensor rgb = drawing(45, 64, 3);
  const std::string bytes = jpeg_of(rgb, JCS_RGB);
  EXPECT_LE(largest_difference(decode_image(bytes), rgb.permute({2, 0, 1})), 6);
  EXPECT_EQ(decode_jpeg(bytes, {.channels = 1}).sizes(), (std::vector<int64_t>{1, 45, 64}));
  const torch::Tensor grey = drawing(45, 64, 1);
  EXPECT_LE(largest_difference(decode_jpeg(jpeg_of(grey, JCS_GRAYSCALE), {.channels = 0}), grey.permute({2, 0, 1})), 3);
  EXPECT_EQ(decode_jpeg(jpeg_of(grey, JCS_GRAYSCALE)).size(0), 3);
}

TEST(Image, InksBecomeLight) {
  const torch::Tensor inks = torch::zeros({16, 16, 4}, torch::kByte);  // Adobe's: 0 is full ink, 255 none
  inks.slice(2, 0, 1).fill_(255);                                      // no cyan
  inks.slice(2, 3, 4).fill_(255);                                      // no black
  const torch::Tensor red = torch::zeros({3, 16, 16}, torch::kByte);
  red[0].fill_(255);
  EXPECT_LE(largest_difference(decode_jpeg(jpeg_of(inks, JCS_CMYK)), red), 4);
  EXPECT_NEAR(decode_jpeg(jpeg_of(inks, JCS_CMYK), {.channels = 1})[0][3][3].item<double>(), 76, 3);
}

TEST(Image, CamerasThatWereTurnedAreTurnedBack) {
  const torch::Tensor upright = drawing(24, 40, 3).permute({2, 0, 1});
  for (int orientation = 1; orientation <= 8; ++orientation) {
    // This is what the camera stored: the upright image, turned the other way.
    torch::Tensor stored = upright;
    if (orientation == 2 || orientation == 3) stored = stored.flip({2});
    if (orientation == 3 || orientation == 4) stored = stored.flip({1});
    if (orientation == 5) stored = stored.transpose(1, 2);
    if (orientation == 6) stored = torch::rot90(stored, 1, {1, 2});
    if (orientation == 7) stored = torch::rot90(stored, 2, {1, 2}).transpose(1, 2);
    if (orientation == 8) stored = torch::rot90(stored, -1, {1, 2});
    const torch::Tensor pixels = stored.permute({1, 2, 0}).contiguous();
    for (const bool little : {false, true}) {
      const std::string bytes = jpeg_of(pixels, JCS_RGB, exif_of(orientation, little));
      EXPECT_LE(largest_difference(decode_jpeg(bytes), upright), 8) << orientation;
      EXPECT_LE(largest_difference(decode_jpeg(bytes, {.upright = false}), stored), 8) << orientation;
    }
  }
  EXPECT_EQ(images::orientation_in("Exif"), 1);
  EXPECT_EQ(images::orientation_in(exif_of(9, true)), 1);
  EXPECT_EQ(images::orientation_in(exif_of(6, true).substr(0, 20)), 1);
}

TEST(Image, LargeJpegsAreDecodedSmallerWhereThatIsEnough) {
  const std::string bytes = jpeg_of(drawing(400, 640, 3), JCS_RGB);
  const auto sizes = [&](int64_t at_least) { return decode_jpeg(bytes, {.at_least = at_least}).sizes().vec(); };
  EXPECT_EQ(sizes(0), (std::vector<int64_t>{3, 400, 640}));
  EXPECT_EQ(sizes(201), (std::vector<int64_t>{3, 400, 640}));
  EXPECT_EQ(sizes(200), (std::vector<int64_t>{3, 200, 320}));
  EXPECT_EQ(sizes(64), (std::vector<int64_t>{3, 100, 160}));
  EXPECT_EQ(sizes(1), (std::vector<int64_t>{3, 50, 80}));
}

TEST(Image, WhatIsWrongIsSaid) {
  const std::string jpeg = jpeg_of(drawing(60, 60, 3), JCS_RGB);
  const std::string png = png_of(drawing(60, 60, 3), PNG_FORMAT_RGB);
  const auto decode = [](const std::string& bytes) { return [bytes] { (void)decode_image(bytes, {}, "a.jpg"); }; };
  expect_error<DataLoss>(decode(jpeg.substr(0, jpeg.size() / 2)), "[image] a.jpg: the JPEG is damaged: ");
  expect_error<DataLoss>(decode(jpeg.substr(0, 30)), "a.jpg: the JPEG is damaged");
  expect_error<DataLoss>(decode(png.substr(0, png.size() / 2)), "a.jpg: the PNG is damaged at byte");
  std::string bad = png;
  bad[bad.size() / 2] ^= 1;
  expect_error<DataLoss>(decode(bad), "the PNG is damaged");
  expect_error<DataLoss>(decode("GIF89a"), "a.jpg: neither a JPEG nor a PNG (6 bytes)");
  expect_error<DataLoss>(decode(""), "neither a JPEG nor a PNG");
  expect_error<InvalidArgument>([&] { (void)decode_image(jpeg, {.most_pixels = 3'599}); }, "60 x 60 pixels");
  expect_error<InvalidArgument>([&] { (void)decode_image(png, {.most_pixels = 3'599}); }, "60 x 60 pixels");
  expect_error<InvalidArgument>([&] { (void)decode_image(png, {.channels = 4}); }, "channels is 4");
}

TEST(Image, PhotographsAreDecoded) {
  const auto folder = testing::real_data("cats_vs_dogs/cat");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no photographs in " << folder;
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const torch::Tensor image = decode_image(testing::read_file(entry.path()), {.at_least = 64}, entry.path().string());
    EXPECT_EQ(image.size(0), 3);
    EXPECT_GE(std::min(image.size(1), image.size(2)), 24);
    if (++count == 200) break;
  }
  EXPECT_EQ(count, 200);
}

}  // namespace
}  // namespace cohort::image_test
