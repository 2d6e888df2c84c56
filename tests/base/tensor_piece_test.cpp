#include "base/tensor_piece.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace cohort::tensor_piece_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

torch::Tensor numbered(const std::vector<int64_t>& shape) {
  return at::arange(elements_in(shape), torch::kLong).view(shape);
}

std::vector<int64_t> elements(const Runs& runs) {
  std::vector<int64_t> all;
  for (int64_t run = 0; run < runs.count; ++run) {
    for (int64_t i = 0; i < runs.length; ++i) all.push_back(runs.offset + run * runs.stride + i);
  }
  return all;
}

std::vector<int64_t> list_of(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.contiguous().view(-1);
  return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
}

TEST(TensorPiece, RunsOfASliceAreItsElements) {
  const std::vector<int64_t> shape = {4, 6, 5};
  for (const auto& [dim, parts] : {std::pair<int64_t, int64_t>{0, 2}, {1, 3}, {1, 2}, {2, 5}, {2, 1}}) {
    const int64_t size = shape[static_cast<std::size_t>(dim)] / parts;
    for (int64_t part = 0; part < parts; ++part) {
      const Runs runs = runs_of(shape, {.dim = dim, .part = part, .parts = parts});
      EXPECT_EQ(elements(runs), list_of(numbered(shape).narrow(dim, part * size, size))) << dim << " " << part;
    }
  }
  // Three runs of a packed dimension, each cut in two.
  const Runs packed = runs_of({6, 2}, {.dim = 0, .part = 1, .parts = 2, .runs = 3});
  EXPECT_THAT(elements(packed), ElementsAre(2, 3, 6, 7, 10, 11));
}

// A part of a whole that lies in another order, such as channels last.
TEST(TensorPiece, RunsOfASliceAreCountedInTheOrderOfTheDimensions) {
  const std::vector<int64_t> shape = {4, 6, 5};
  const std::vector<int64_t> order = {0, 2, 1};
  const torch::Tensor numbers = numbered({4, 5, 6}).permute({0, 2, 1});  // [shape], in memory by `order`
  for (const int64_t dim : {0, 1}) {
    for (const int64_t part : {0, 1}) {
      const int64_t size = shape[static_cast<std::size_t>(dim)] / 2;
      const Runs runs = runs_of(shape, {.dim = dim, .part = part, .parts = 2}, order);
      EXPECT_EQ(elements(runs), list_of(numbers.narrow(dim, part * size, size).permute(order))) << dim << " " << part;
    }
  }
}

TEST(TensorPiece, RunsBetweenTwoElementsAreTheirs) {
  for (const Runs& runs : {Runs{.offset = 3, .length = 20}, Runs{.offset = 2, .length = 4, .stride = 9, .count = 5}}) {
    const std::vector<int64_t> all = elements(runs);
    for (int64_t begin = 0; begin <= runs.size(); ++begin) {
      for (int64_t end = begin; end <= runs.size(); ++end) {
        std::vector<int64_t> found;
        const std::vector<Runs> parts = runs_between(runs, begin, end);
        EXPECT_LE(parts.size(), 3u);
        for (const Runs& part : parts) {
          for (const int64_t each : elements(part)) found.push_back(each);
        }
        EXPECT_EQ(found, std::vector<int64_t>(all.begin() + begin, all.begin() + end)) << begin << " to " << end;
      }
    }
  }
}

TEST(TensorPiece, TensorsByNameAreReadInPieces) {
  const torch::Tensor tensor = numbered({4, 6});
  const TensorsByName source({{"a", tensor}, {"b", torch::ones({2})}});
  EXPECT_THAT(source.names(), ElementsAre("a", "b"));
  EXPECT_EQ(source.find("c"), nullptr);
  EXPECT_THAT(source.find("a")->shape, ElementsAre(4, 6));
  EXPECT_TRUE(torch::equal(source.read_whole("a"), tensor));
  const Runs columns = runs_of({4, 6}, {.dim = 1, .part = 1, .parts = 3});
  EXPECT_EQ(list_of(source.read("a", columns, {})), list_of(tensor.slice(1, 2, 4)));
  EXPECT_EQ(list_of(source.read("a", {.offset = 4, .length = 4}, {1, 0})), list_of(tensor.slice(1, 1, 2)));
}

TEST(TensorPiece, CommonElementsAreThoseOfBoth) {
  const std::vector<Runs> lists = {{.offset = 3, .length = 20},
                                   {.offset = 1, .length = 3, .stride = 7, .count = 4},
                                   {.offset = 0, .length = 5, .stride = 5, .count = 6},
                                   {.offset = 2, .length = 1, .stride = 3, .count = 9},
                                   {.offset = 29, .length = 1}};
  for (const Runs& a : lists) {
    for (const Runs& b : lists) {
      const std::vector<int64_t> first = elements(a);
      const std::vector<int64_t> second = elements(b);
      std::set<int64_t> wanted;
      for (const int64_t each : first) {
        if (std::find(second.begin(), second.end(), each) != second.end()) wanted.insert(each);
      }
      std::set<int64_t> found;
      each_common(a, b, [&](int64_t from, int64_t to, int64_t length) {
        for (int64_t i = 0; i < length; ++i) {
          EXPECT_EQ(first[static_cast<std::size_t>(from + i)], second[static_cast<std::size_t>(to + i)]);
          EXPECT_TRUE(found.insert(first[static_cast<std::size_t>(from + i)]).second);
        }
      });
      EXPECT_EQ(found, wanted);
    }
  }
}

TEST(TensorPiece, TheOrderIsThatOfMemory) {
  const torch::Tensor images = numbered({2, 3, 4, 5});
  EXPECT_THAT(order_of(images.sizes(), images.strides()), IsEmpty());
  const torch::Tensor last = images.contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_THAT(order_of(last.sizes(), last.strides()), ElementsAre(0, 2, 3, 1));
  EXPECT_THAT(order_of({4, 3}, {1, 4}), ElementsAre(1, 0));
  EXPECT_THAT(order_of({4, 1, 3}, {3, 1, 1}), IsEmpty()) << "where one element is does not matter";
  EXPECT_THAT(order_of({}, {}), IsEmpty());
}

TEST(TensorPiece, WritersHaveAboutTheSameBytes) {
  EXPECT_THAT(writers_of({10, 40, 20, 30}, 2), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(writers_of({1, 1, 1}, 1), ElementsAre(0, 0, 0));
  EXPECT_THAT(writers_of({}, 3), IsEmpty());
}

}  // namespace
}  // namespace cohort::tensor_piece_test
