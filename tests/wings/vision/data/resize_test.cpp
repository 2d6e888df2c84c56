// Resizing beside Pillow's (python3-pil): the same bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "cohort/data/image.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::resize_test {
namespace {

using testing::expect_error;

struct Case {
  int64_t height, width, channels, new_height, new_width;
};

constexpr Case kCases[] = {{37, 53, 3, 20, 11},     {37, 53, 3, 74, 90}, {37, 53, 1, 37, 11},
                           {20, 9, 3, 5, 9},        {1, 1, 3, 4, 5},     {5, 4, 3, 1, 1},
                           {300, 451, 3, 224, 224}, {64, 64, 1, 63, 65}, {3, 2, 3, 200, 3}};

// uint8 [channels, height, width], hard: noise.
torch::Tensor image_of(const Case& test) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(test.height * 1000 + test.width));
  return torch::randint(0, 256, {test.height, test.width, test.channels}, generator, torch::kByte).permute({2, 0, 1});
}

TEST(Resize, GivesWhatPillowGives) {
  if (std::system("/usr/bin/python3 -c 'import PIL' > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "/usr/bin/python3 has no PIL (Debian's python3-pil): no reference";
  }
  const testing::TemporaryFolder folder;
  nlohmann::json list = nlohmann::json::array();
  for (const Case& test : kCases) {
    for (const char* filter : {"bilinear", "bicubic"}) {
      const std::string file = std::to_string(list.size());
      const torch::Tensor bytes = image_of(test).permute({1, 2, 0}).contiguous();
      testing::write_file(folder.path() / file,
                          {static_cast<const char*>(bytes.data_ptr()), static_cast<std::size_t>(bytes.numel())});
      list.push_back({{"file", file},
                      {"height", test.height},
                      {"width", test.width},
                      {"channels", test.channels},
                      {"new_height", test.new_height},
                      {"new_width", test.new_width},
                      {"filter", filter}});
    }
  }
  testing::write_file(folder.path() / "cases.json", list.dump());
  const std::string command = "/usr/bin/python3 tests/wings/vision/data/resize_reference.py " + folder.path().string();
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Case& test = kCases[i / 2];
    const auto filter = i % 2 == 0 ? Interpolation::kBilinear : Interpolation::kBicubic;
    const torch::Tensor got = resize_image(image_of(test), test.new_height, test.new_width, {.interpolation = filter});
    const std::string bytes = testing::read_file(folder.path() / (std::to_string(i) + ".out"));
    ASSERT_EQ(static_cast<int64_t>(bytes.size()), got.numel());
    const torch::Tensor wanted = torch::from_blob(const_cast<char*>(bytes.data()),
                                                  {test.new_height, test.new_width, test.channels}, torch::kByte);
    EXPECT_TRUE(torch::equal(got.permute({1, 2, 0}), wanted)) << list[i];
  }
}

TEST(Resize, WithoutAntialiasingItIsLibTorchs) {
  const Case test{40, 60, 3, 17, 23};
  const torch::Tensor image = image_of(test);
  const torch::Tensor got = resize_image(image, 17, 23, {.antialias = false});
  const torch::Tensor wanted = torch::nn::functional::interpolate(image.to(torch::kFloat).unsqueeze(0).contiguous(),
                                                                  torch::nn::functional::InterpolateFuncOptions()
                                                                      .size(std::vector<int64_t>{17, 23})
                                                                      .mode(torch::kBilinear)
                                                                      .align_corners(false))[0];
  EXPECT_LE((got.to(torch::kFloat) - wanted).abs().max().item<double>(), 1.01) << "two roundings";
}

TEST(Resize, WhatIsWrongIsSaid) {
  const torch::Tensor image = torch::zeros({3, 4, 5}, torch::kByte);
  EXPECT_TRUE(torch::equal(resize_image(image, 4, 5), image));
  expect_error<InvalidArgument>([&] { (void)resize_image(image, 0, 5); }, "to 0 x 5");
  expect_error<InvalidArgument>([&] { (void)resize_image(image.to(torch::kFloat), 2, 2); }, "wanted uint8");
  expect_error<InvalidArgument>([&] { (void)resize_image(torch::zeros({4, 4}, torch::kByte), 2, 2); }, "got [4, 4]");
  expect_error<InvalidArgument>([&] { (void)resize_image({}, 2, 2); }, "an undefined tensor");
}

TEST(CenterCrop, TakesTheMiddle) {
  const torch::Tensor image = torch::arange(7 * 6, torch::kByte).view({1, 7, 6});
  EXPECT_TRUE(torch::equal(center_crop(image, 3, 2), image.slice(1, 2, 5).slice(2, 2, 4)));
  EXPECT_TRUE(torch::equal(center_crop(image, 7, 6), image));
  EXPECT_TRUE(torch::equal(center_crop(image, 2, 1), image.slice(1, 2, 4).slice(2, 2, 3))) << "halves to the even side";
  expect_error<InvalidArgument>([&] { (void)center_crop(image, 8, 2); }, "8 x 2 of an image of 7 x 6");
}

}  // namespace
}  // namespace cohort::resize_test
