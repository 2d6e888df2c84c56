#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/data/datasets.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::segmentation_folder_test {
namespace {

using cohort::testing::expect_error;
using cohort::testing::TemporaryFolder;
using cohort::testing::write_file;

class SegmentationFolder : public ::testing::Test {
 protected:
  SegmentationFolder() {
    for (const char* name : {"images", "masks"}) std::filesystem::create_directories(folder_ / name);
  }
  void write(const std::string& name, const torch::Tensor& image, const torch::Tensor& mask) const {
    write_file(folder_ / "images" / (name + ".png"), encode_png(image));
    write_file(folder_ / "masks" / (name + ".png"), encode_png(mask));
  }
  void write_some(int count) const {
    for (int i = 0; i < count; ++i) {
      write(std::to_string(i), torch::full({3, 4 + i, 5}, 10 * i, torch::kByte),
            torch::full({1, 4 + i, 5}, i, torch::kByte));
    }
  }

  TemporaryFolder folder_;
};

TEST_F(SegmentationFolder, PairsPicturesAndMasksByName) {
  write_some(4);
  write_file(folder_ / "images" / "notes.txt", "no picture");
  const auto [train, test] = datasets::segmentation_folder(folder_.path(), {.held_out = 0.25});
  EXPECT_EQ(train.cardinality(), 3);
  EXPECT_EQ(test.cardinality(), 1);
  int64_t seen = 0;
  for (const Dataset& part : {train, test}) {
    Iterator iterator = part.iterator();
    while (const auto example = iterator.next()) {
      ++seen;
      const int64_t label = example->y[0][0].item<int64_t>();
      EXPECT_EQ(example->y.sizes(), (std::vector<int64_t>{4 + label, 5}));
      EXPECT_EQ(example->x.sizes(), (std::vector<int64_t>{3, 4 + label, 5}));
      EXPECT_TRUE(example->x.eq(10 * label).all().item<bool>());
      EXPECT_TRUE(example->y.eq(label).all().item<bool>());
    }
  }
  EXPECT_EQ(seen, 4);
}

TEST_F(SegmentationFolder, ReadsTheFoldersOfImagesAndLeavesOutHiddenOnes) {
  for (const char* name : {"images", "masks"}) std::filesystem::create_directories(folder_ / name / "town" / "1");
  write("a", torch::full({3, 2, 2}, 1, torch::kByte), torch::full({1, 2, 2}, 1, torch::kByte));
  write("town/1/a", torch::full({3, 2, 2}, 2, torch::kByte), torch::full({1, 2, 2}, 2, torch::kByte));
  std::filesystem::create_directories(folder_ / "images" / ".cache");
  write_file(folder_ / "images" / ".cache" / "a.png", "none");
  write_file(folder_ / "images" / "._a.png", "none");
  std::vector<int64_t> seen;
  for (const Example& example : datasets::segmentation_folder(folder_.path()).train) {
    seen.push_back(example.y[0][0].item<int64_t>());
    EXPECT_EQ(example.x[0][0][0].item<int64_t>(), seen.back());
  }
  EXPECT_EQ(seen, (std::vector<int64_t>{1, 2}));
}

TEST_F(SegmentationFolder, RefusesWhatDoesNotFit) {
  const auto open = [&](double held_out = 0.0) {
    return datasets::segmentation_folder(folder_.path(), {.held_out = held_out});
  };
  const auto read = [&] {
    Iterator iterator = open().train.iterator();
    while (iterator.next()) {
    }
  };
  expect_error<NotFound>([&] { open(); }, "has no JPEG or PNG files");
  write_some(1);
  expect_error<InvalidArgument>([&] { open(1.0); }, "held_out is 1, wanted 0 or more and below 1");
  expect_error<InvalidArgument>([&] { datasets::segmentation_folder(folder_.path(), {.decode = {.at_least = 8}}); },
                                "decode.at_least is 8");
  const torch::Tensor picture = torch::zeros({3, 4, 5}, torch::kByte);
  write("0", picture, torch::zeros({3, 4, 5}, torch::kByte));
  expect_error<InvalidArgument>(read, "the mask is in colour");
  write("0", picture, torch::zeros({1, 4, 6}, torch::kByte));
  expect_error<InvalidArgument>(read, "the mask has 4 x 6 pixels, but its picture 4 x 5");
  write_file(folder_ / "images" / "1.png", encode_png(picture));
  expect_error<NotFound>([&] { open(); }, "1.png: has no mask");
  write_file(folder_ / "images" / "0.jpg", "two of one name");
  expect_error<InvalidArgument>([&] { open(); }, "there are two pictures called 0");
}

}  // namespace
}  // namespace cohort::segmentation_folder_test
