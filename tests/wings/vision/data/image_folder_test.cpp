#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>
#include <sys/stat.h>
#include <torch/types.h>
#include <zlib.h>

#include <set>

#include "cohort/data/datasets.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::image_folder_test {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;
using testing::write_file;

std::string png(uint8_t value) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = image.width = 2;
  image.format = PNG_FORMAT_GRAY;
  const std::array<uint8_t, 4> pixels = {value, value, value, value};
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data(), 0, nullptr);
  std::string bytes(size, '\0');
  png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data(), 0, nullptr);
  bytes.resize(size);
  return bytes;
}

// Two classes of ten files; a file's pixels are its number, from 100 on in the second class.
class Folder : public TemporaryFolder {
 public:
  Folder() {
    for (const char* name : {"apples", "pears", "empty"}) std::filesystem::create_directories(path() / name);
    for (int i = 0; i < 10; ++i) {
      const auto number = static_cast<uint8_t>(i);
      write_file(path() / "apples" / (std::to_string(i) + ".png"), png(number));
      write_file(path() / "pears" / (std::to_string(i) + ".PNG"), png(static_cast<uint8_t>(100 + number)));
    }
    write_file(path() / "apples" / "notes.txt", "no image");
    write_file(path() / "readme.png", png(1));
  }
};

std::vector<int64_t> values(const Dataset& dataset, int64_t epoch = 0) {
  std::vector<int64_t> list;
  Iterator iterator = dataset.iterator({.epoch = epoch});
  while (const auto example = iterator.next()) {
    list.push_back(example->x[0][0][0].item<int64_t>());
    EXPECT_EQ(example->y.dim(), 0);
    EXPECT_EQ(example->y.item<int64_t>(), list.back() / 100);
    EXPECT_EQ(example->x.sizes(), (std::vector<int64_t>{3, 2, 2}));
  }
  return list;
}

TEST(ImageFolder, ClassesAreFolders) {
  const Folder folder;
  const auto [train, test, names] = datasets::image_folder(folder.path(), {.shuffle = false});
  EXPECT_EQ(names, (std::vector<std::string>{"apples", "pears"}));
  EXPECT_EQ(train.cardinality(), 20);
  EXPECT_EQ(test.cardinality(), 0);
  const std::vector<int64_t> all = values(train);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  EXPECT_EQ(all.size(), 20U);
}

TEST(ImageFolder, APartIsHeldOutAndTheRestIsShuffled) {
  const Folder folder;
  const datasets::ImageFolderOptions options{.threads = {.num_parallel_calls = 2}, .held_out = 0.25, .seed = 5};
  const auto [train, test, names] = datasets::image_folder(folder.path(), options);
  const std::vector<int64_t> first = values(train);
  const std::vector<int64_t> second = values(train, 1);
  const std::vector<int64_t> held_out = values(test);
  EXPECT_EQ(held_out.size(), 5U);
  EXPECT_EQ(first.size(), 15U);
  EXPECT_NE(first, second);
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
  std::set<int64_t> all(first.begin(), first.end());
  EXPECT_EQ(std::set<int64_t>(second.begin(), second.end()), all);
  all.insert(held_out.begin(), held_out.end());
  EXPECT_EQ(all.size(), 20U) << "none is in both";
  EXPECT_EQ(values(datasets::image_folder(folder.path(), options).test), held_out);
}

TEST(ImageFolder, WhatIsDamagedIsNamedOrLeftOut) {
  const Folder folder;
  write_file(folder.path() / "pears" / "3.PNG", png(103).substr(0, 40));
  expect_error<DataLoss>([&] { (void)values(datasets::image_folder(folder.path()).train); },
                         "3.PNG: the PNG is damaged");
  const auto skipping = datasets::image_folder(folder.path(), {.skip_damaged = true});
  EXPECT_EQ(values(skipping.train).size(), 19U);
  expect_error<NotFound>([&] { (void)datasets::image_folder(folder.path() / "empty"); }, "has no folders with JPEG");
  expect_error<NotFound>([] { (void)datasets::image_folder("/nowhere"); }, "/nowhere: cannot be listed");
  expect_error<InvalidArgument>([&] { (void)datasets::image_folder(folder.path(), {.held_out = 1.0}); },
                                "held_out is 1");
}

// A PNG whose header says 60,000 x 60,000 pixels.
std::string huge_png() {
  std::string bytes = png(1);
  for (const std::size_t at : {16U, 20U}) bytes.replace(at, 4, std::string("\0\0\xea\x60", 4));
  const auto crc = static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(bytes.data() + 12), 17));
  for (std::size_t i = 0; i < 4; ++i) bytes[29 + i] = static_cast<char>(crc >> (24 - 8 * i));
  return bytes;
}

TEST(ImageFolder, WhatCannotBeAPictureIsNamedOrLeftOut) {
  const auto expect_left_out = [](const std::string& name, const auto& make, const std::string& message) {
    const Folder folder;
    const auto file = folder.path() / "pears" / name;
    make(file);
    const std::string said =
        testing::error_of<Error>([&] { (void)values(datasets::image_folder(folder.path()).train); });
    EXPECT_NE(said.find(name), std::string::npos) << said;
    EXPECT_NE(said.find(message), std::string::npos) << said;
    const auto skipping = datasets::image_folder(folder.path(), {.skip_damaged = true});
    EXPECT_EQ(values(skipping.train).size(), 20U) << name;
  };
  expect_left_out(
      "huge.png", [](const auto& file) { write_file(file, huge_png()); }, "60000 x 60000 pixels");
  expect_left_out(
      "none.jpg", [](const auto& file) { std::filesystem::create_symlink("nowhere", file); }, "a link to nowhere");
  expect_left_out(
      "folder.jpg", [](const auto& file) { std::filesystem::create_directory(file); }, "is no file");
  expect_left_out(
      "pipe.jpg", [](const auto& file) { ASSERT_EQ(mkfifo(file.c_str(), 0600), 0); }, "is no file");
  expect_left_out(
      "empty.png", [](const auto& file) { write_file(file, ""); }, "neither a JPEG nor a PNG");
  expect_left_out(
      "large.jpg",
      [](const auto& file) {
        write_file(file, "");
        std::filesystem::resize_file(file, int64_t{1} << 40);  // without blocks
      },
      "wanted a picture of at most");
  const Folder folder;
  DecodeOptions decode;
  decode.channels = 2;
  expect_error<InvalidArgument>(
      [&] { (void)datasets::image_folder(folder.path(), {.decode = decode, .skip_damaged = true}); }, "channels is 2");
}

// Keras' image_dataset_from_directory leaves out names that begin with a dot and walks through the folders of a class.
TEST(ImageFolder, HiddenEntriesAreLeftOutAndFoldersOfAClassAreRead) {
  const Folder folder;
  const auto add = [&](const std::filesystem::path& name, uint8_t value) {
    std::filesystem::create_directories((folder.path() / name).parent_path());
    write_file(folder.path() / name, png(value));
  };
  add(".ipynb_checkpoints/1.png", 200);
  add("apples/.thumbnails/1.png", 200);
  add("pears/2019/spring/x.png", 111);
  add("pears/2020/x.png", 112);
  add("pears/zz.png", 110);
  write_file(folder.path() / "apples" / "._1.png", "Mac OS X");
  std::filesystem::create_directory_symlink("..", folder.path() / "pears" / "up");
  const auto [train, test, names] = datasets::image_folder(folder.path(), {.shuffle = false});
  EXPECT_EQ(names, (std::vector<std::string>{"apples", "pears"}));
  EXPECT_EQ(values(train), (std::vector<int64_t>{0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   100, 101,
                                                 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112}));
}

TEST(ImageFolder, ClassesOfAnotherFolderGoByName) {
  const Folder training;
  std::filesystem::create_directories(training.path() / "kiwis");
  write_file(training.path() / "kiwis" / "0.png", png(50));
  const auto names = datasets::image_folder(training.path()).class_names;
  EXPECT_EQ(names, (std::vector<std::string>{"apples", "kiwis", "pears"}));
  const Folder other;  // without kiwis
  const auto read = datasets::image_folder(other.path(), {.shuffle = false, .class_names = names});
  EXPECT_EQ(read.class_names, names);
  std::vector<int64_t> labels;
  for (const Example& example : read.train) labels.push_back(example.y.item<int64_t>());
  std::vector<int64_t> wanted(10, 0);
  wanted.insert(wanted.end(), 10, 2);
  EXPECT_EQ(labels, wanted);
  expect_error<InvalidArgument>(
      [&] {
        (void)datasets::image_folder(training.path(), {.class_names = {"apples", "pears"}});
      },
      "kiwis: class_names does not have this class, only apples, pears");
  expect_error<InvalidArgument>(
      [&] {
        (void)datasets::image_folder(other.path(), {.class_names = {"a", "a"}});
      },
      "class_names has \"a\" twice");
}

TEST(ImageFolder, PartsAreNoClasses) {
  const TemporaryFolder folder;
  for (const char* part : {"train", "val"}) {
    std::filesystem::create_directories(folder.path() / part / "apples");
    write_file(folder.path() / part / "apples" / "1.png", png(1));
  }
  expect_error<InvalidArgument>([&] { (void)datasets::image_folder(folder.path()); },
                                "its folders, such as \"train\", are parts of a data set");
  EXPECT_EQ(datasets::image_folder(folder.path() / "val").class_names, std::vector<std::string>{"apples"});
}

TEST(ImageFolder, PhotographsAreRead) {
  const auto folder = testing::real_data("cats_vs_dogs");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no photographs in " << folder;
  const auto [train, test, names] = datasets::image_folder(folder, {.held_out = 0.2});
  EXPECT_EQ(names, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(train.cardinality() + test.cardinality(), 1'399);
  EXPECT_EQ(test.cardinality(), 280);
  const Dataset batches = test.take(8).map([](Example example) {
    example.x = resize_image(example.x, 32, 32);
    return example;
  });
  EXPECT_EQ(batches.batch(8).iterator().next()->x.sizes(), (std::vector<int64_t>{8, 3, 32, 32}));
}

}  // namespace
}  // namespace cohort::image_folder_test
