// Text cut into examples for a language model.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "cohort/data/datasets.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::text_test {
namespace {

using cohort::testing::expect_error;
using cohort::testing::TemporaryFolder;
using cohort::testing::write_file;
using namespace std::string_literals;

std::string text_of(const torch::Tensor& bytes) {
  const torch::Tensor whole = bytes.contiguous();
  return {static_cast<const char*>(whole.data_ptr()), static_cast<std::size_t>(whole.numel())};
}

std::vector<Example> all_of(const Dataset& data) {
  std::vector<Example> list;
  Iterator iterator = data.iterator();
  while (auto example = iterator.next()) list.push_back(*example);
  return list;
}

// Returns the text that the examples are of.
std::string whole(const Dataset& data) {
  std::string text;
  for (const Example& example : all_of(data)) {
    EXPECT_EQ(example.x.scalar_type(), torch::kByte);
    EXPECT_EQ(text_of(example.x).substr(1), text_of(example.y.slice(0, 0, -1)));
    if (!text.empty()) {
      EXPECT_EQ(text.back(), text_of(example.x).front());  // no byte is left out
      text.pop_back();
    }
    text += text_of(example.x) + text_of(example.y.slice(0, -1));
  }
  return text;
}

TEST(Text, OfAFileIsCutWithoutGaps) {
  const TemporaryFolder folder;
  write_file(folder / "a.txt", "abcdefghijkl");
  const auto [train, test] = datasets::text(folder / "a.txt", {.seq_length = 3});
  EXPECT_EQ(train.cardinality(), 3);
  EXPECT_EQ(test.cardinality(), 0);
  EXPECT_EQ(whole(train), "abcdefghij");
}

TEST(Text, OfAFolderIsThatOfItsTextFilesByName) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "b");
  write_file(folder / "c.py", "four");
  write_file(folder / "a.txt", "one");
  write_file(folder / "b" / "x.txt", "two");
  write_file(folder / "b" / "y.md", "three");
  write_file(folder / "b" / ".hidden", "not this");
  write_file(folder / "picture.png", "\x89PNG\0\0"s);
  std::filesystem::create_symlink("a.txt", folder / "again.txt");
  EXPECT_EQ(whole(datasets::text(folder.path(), {.seq_length = 1}).train), "one\0two\0three\0four\0"s);
  EXPECT_EQ(whole(datasets::text(folder.path(), {.seq_length = 1, .suffixes = {".txt", ".py"}}).train),
            "one\0two\0four\0"s);
}

TEST(Text, HoldsOutAPartThatTheOtherDoesNotHave) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += c10::str(1000 + i);
  write_file(folder / "a", text + "x");
  const auto open = [&](uint64_t seed) {
    return datasets::text(folder / "a", {.seq_length = 4, .held_out = 0.2, .seed = seed});
  };
  std::set<std::string> seen;
  for (const Dataset& part : {open(1).train, open(1).test}) {
    for (const Example& example : all_of(part)) EXPECT_TRUE(seen.insert(text_of(example.x)).second);
  }
  EXPECT_EQ(seen.size(), 100U);
  EXPECT_EQ(open(1).test.cardinality(), 20);
  const auto first = [](const Dataset& data) { return text_of(all_of(data).front().x); };
  EXPECT_NE(first(open(1).test) + first(open(1).train), first(open(2).test) + first(open(2).train));
}

TEST(Text, RefusesWhatIsNone) {
  const TemporaryFolder folder;
  const auto open = [&](const datasets::TextOptions& options = {}) { datasets::text(folder.path(), options); };
  expect_error<NotFound>([&] { datasets::text(folder / "none"); }, "none: there is no such file or folder of text");
  expect_error<NotFound>([&] { open(); }, "has no text files");
  expect_error<NotFound>([&] { open({.suffixes = {".txt"}}); }, "whose names end with .txt");
  write_file(folder / "a", "short");
  expect_error<InvalidArgument>([&] { open(); }, "text: the text has 6 bytes, wanted at least 129");
  expect_error<InvalidArgument>([&] { open({.seq_length = 0}); }, "text: seq_length is 0, wanted 1 or more");
  expect_error<InvalidArgument>([&] { open({.held_out = 1.0}); }, "text: held_out is 1");
}

TEST(DrawnSums, AreRightAndTheSameForTheSameSeed) {
  const datasets::DrawnSumsOptions options{.seq_length = 50, .train_size = 40, .test_size = 10, .seed = 3};
  const auto [train, test] = datasets::drawn_sums(options);
  EXPECT_EQ(train.cardinality(), 40);
  EXPECT_EQ(test.cardinality(), 10);
  const std::string text = whole(train);
  EXPECT_EQ(text, whole(datasets::drawn_sums(options).train));
  EXPECT_NE(text.substr(0, 400), whole(test).substr(0, 400));
  std::istringstream lines(text.substr(0, text.rfind('\n')));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto plus = line.find('+');
    const auto equals = line.find('=');
    EXPECT_EQ(std::stoi(line) + std::stoi(line.substr(plus + 1)), std::stoi(line.substr(equals + 1))) << line;
  }
  EXPECT_GT(count, 100);
  expect_error<InvalidArgument>([] { datasets::drawn_sums({.train_size = 0}); }, "drawn_sums: train_size is 0");
  expect_error<InvalidArgument>([] { datasets::drawn_sums({.seq_length = 0}); }, "drawn_sums: seq_length is 0");
}

}  // namespace
}  // namespace cohort::text_test
