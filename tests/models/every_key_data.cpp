#include "tests/models/every_key_data.h"

#include <png.h>
#include <torch/torch.h>

#include "cohort/data/image.h"
#include "tests/support/files.h"
#include "tests/support/idx.h"

namespace cohort::testing {

namespace {

// Returns a PNG file of noise.
std::string png_of(int number) {
  torch::manual_seed(number);
  const torch::Tensor pixels = torch::randint(256, {36, 40, 3}, torch::kByte);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = 40;
  image.height = 36;
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data_ptr(), 0, nullptr);
  std::string bytes(size, '\0');
  png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data_ptr(), 0, nullptr);
  bytes.resize(size);
  return bytes;
}

// Returns the number of the first noise of a folder.
int first_of(const std::filesystem::path& folder) {
  return static_cast<int>(folder.filename().string().size());
}

}  // namespace

void make_photographs(const std::filesystem::path& folder) {
  int number = first_of(folder);
  for (const char* label : {"cat", "dog"}) {
    std::filesystem::create_directories(folder / label);
    for (int i = 0; i < 10; ++i) write_file(folder / label / c10::str(i, ".png"), png_of(++number));
  }
}

void spoil_a_photograph(const std::filesystem::path& folder) {
  write_file(folder / "dog" / "1.png", png_of(1).substr(0, 300));
}

void make_scenes(const std::filesystem::path& folder) {
  for (const char* part : {"images", "masks"}) std::filesystem::create_directories(folder / part);
  int number = first_of(folder);
  for (int i = 0; i < 20; ++i) {
    const std::string name = c10::str(i, ".png");
    write_file(folder / "images" / name, png_of(++number));
    write_file(folder / "masks" / name, encode_png(torch::randint(4, {1, 36, 40}, torch::kByte)));
  }
}

void make_digits(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  for (const auto& [part, count] : {std::pair("train", 16U), std::pair("t10k", 4U)}) {
    std::string pixels;
    std::string labels;
    for (uint32_t i = 0; i < count; ++i) {
      for (uint32_t p = 0; p < 28 * 28; ++p) pixels.push_back(static_cast<char>((i * 37 + p * p) % 251));
      labels.push_back(static_cast<char>(i % 10));
    }
    write_file(folder / c10::str(part, "-images-idx3-ubyte"), idx(8, {count, 28, 28}, pixels));
    write_file(folder / c10::str(part, "-labels-idx1-ubyte"), idx(8, {count}, labels));
  }
}

void make_writings(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const auto step = static_cast<std::size_t>(first_of(folder));
  std::string text;
  for (std::size_t i = 0; i < 270; ++i) text.push_back(static_cast<char>('a' + (i * i * step) % 23));
  write_file(folder / "text.txt", text);
  write_file(folder / "more.md", text.substr(100));
}

void make_clicks(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const auto step = static_cast<int64_t>(first_of(folder));
  std::string lines;
  for (int64_t i = 0; i < 47; ++i) {
    lines += std::to_string(i * step % 7 % 2);
    for (int64_t f = 0; f < 39; ++f) lines += c10::str("\t", (i * i * step + f * i) % 10);
    lines += "\n";
  }
  write_file(folder / "clicks.tsv", lines);
}

}  // namespace cohort::testing
