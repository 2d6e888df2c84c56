// tf.io.parse_single_example: each form, and what does not fit it.
#include "cohort/data/parse_example.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/data/tf_example.h"
#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::parse_example_test {
namespace {

using io::FeatureDtype;
using io::FeatureSpec;
using testing::expect_error;

std::string record() {
  TFExample example;
  example.set_int64s("label", {7});
  example.set_floats("points", {1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F});
  example.set_bytes("names", {"a", "bc"});
  example.set_int64s("places", {4, 1});
  example.set_floats("weights", {0.5F, 0.25F});
  return example.serialize();
}

io::FeatureValues one(const FeatureSpec& spec, const std::string& name) {
  return io::parse_single_example(record(), {{name, spec}}, "file:3").at(name);
}

torch::Tensor tensor(const FeatureSpec& spec, const std::string& name) {
  return std::get<torch::Tensor>(one(spec, name));
}

TEST(ParseSingleExampleTest, FixedLengthsHaveTheirShape) {
  EXPECT_TRUE(torch::equal(tensor(io::FixedLenFeature{.dtype = FeatureDtype::kInt64}, "label"), torch::tensor(7L)));
  const torch::Tensor points = tensor(io::FixedLenFeature{.shape = {2, 3}}, "points");
  EXPECT_TRUE(torch::equal(points, torch::arange(1, 7, torch::kFloat).view({2, 3})));
  const auto names = one(io::FixedLenFeature{.shape = {2}, .dtype = FeatureDtype::kString}, "names");
  EXPECT_EQ(std::get<std::vector<std::string>>(names), (std::vector<std::string>{"a", "bc"}));
}

TEST(ParseSingleExampleTest, DefaultsStandForWhatIsNotThere) {
  const torch::Tensor filled = tensor(
      io::FixedLenFeature{.shape = {2}, .dtype = FeatureDtype::kInt64, .default_value = torch::tensor(-1L)}, "no");
  EXPECT_TRUE(torch::equal(filled, torch::tensor({-1L, -1L})));
  const auto text =
      one(io::FixedLenFeature{.dtype = FeatureDtype::kString, .default_value = std::vector<std::string>{"none"}}, "no");
  EXPECT_EQ(std::get<std::vector<std::string>>(text), std::vector<std::string>{"none"});
  expect_error<DataLoss>([] { one(io::FixedLenFeature{}, "no"); }, "file:3: the feature \"no\" is not there");
  expect_error<InvalidArgument>([] { one(io::FixedLenFeature{.shape = {3}, .default_value = torch::ones(2)}, "no"); },
                                "has 2 numbers, wanted 1 or 3 floats");
}

TEST(ParseSingleExampleTest, LengthsThatVary) {
  EXPECT_EQ(tensor(io::VarLenFeature{}, "points").sizes(), (torch::IntArrayRef{6}));
  EXPECT_EQ(tensor(io::VarLenFeature{.dtype = FeatureDtype::kInt64}, "no").sizes(), (torch::IntArrayRef{0}));
  const torch::Tensor sequence = tensor(io::FixedLenSequenceFeature{.shape = {2}}, "points");
  EXPECT_TRUE(torch::equal(sequence, torch::arange(1, 7, torch::kFloat).view({3, 2})));
  const torch::Tensor none = tensor(io::FixedLenSequenceFeature{.shape = {2}, .allow_missing = true}, "no");
  EXPECT_EQ(none.sizes(), (torch::IntArrayRef{0, 2}));
  expect_error<DataLoss>([] { one(io::FixedLenSequenceFeature{.shape = {4}}, "points"); }, "a multiple of 4");
  expect_error<DataLoss>([] { one(io::FixedLenSequenceFeature{.shape = {4}}, "no"); }, "is not there");
}

TEST(ParseSingleExampleTest, SparseFeaturesComeFromTwo) {
  const torch::Tensor sparse =
      tensor(io::SparseFeature{.index_key = "places", .value_key = "weights", .size = 5}, "vector");
  EXPECT_TRUE(torch::equal(sparse.to_dense(), torch::tensor({0.0F, 0.25F, 0.0F, 0.0F, 0.5F})));
  expect_error<DataLoss>([] { one(io::SparseFeature{.index_key = "places", .value_key = "weights", .size = 4}, "v"); },
                         "\"places\" has places from 1 to 4, wanted 0 to 3");
  expect_error<DataLoss>([] { one(io::SparseFeature{.index_key = "places", .value_key = "points", .size = 9}, "v"); },
                         "2 places (\"places\") for 6 values");
}

TEST(ParseSingleExampleTest, WhatDoesNotFitIsNamed) {
  expect_error<DataLoss>([] { one(io::FixedLenFeature{}, "label"); },
                         "\"label\" has values of another sort, wanted floats");
  expect_error<DataLoss>([] { one(io::FixedLenFeature{.shape = {5}}, "points"); }, "has 6 values, wanted 5");
  expect_error<DataLoss>([] { io::parse_single_example("no record", {}, "file:9"); }, "file:9");
  expect_error<InvalidArgument>([] { one(io::FixedLenFeature{.shape = {-1}}, "points"); }, "the size -1");
}

TEST(ParseExampleTest, ABatchHasItsRecordsInTheFirstDimension) {
  TFExample other;
  other.set_int64s("label", {9});
  other.set_floats("points", {7.0F, 8.0F});
  other.set_int64s("places", {0});
  other.set_floats("weights", {2.0F});
  const std::string first = record(), second = other.serialize();
  const auto parsed = io::parse_example(
      {first, second},
      {{"label", io::FixedLenFeature{.shape = {1}, .dtype = FeatureDtype::kInt64}},
       {"points", io::VarLenFeature{}},
       {"sequence", io::FixedLenSequenceFeature{.shape = {2}, .allow_missing = true}},
       {"names", io::VarLenFeature{.dtype = FeatureDtype::kString}},
       {"sparse", io::SparseFeature{.index_key = "places", .value_key = "weights", .size = 5}},
       {"text", io::FixedLenFeature{.dtype = FeatureDtype::kString, .default_value = std::vector<std::string>{"-"}}}},
      "file");
  const auto number = [&](const char* name) { return std::get<torch::Tensor>(parsed.at(name)); };
  EXPECT_TRUE(torch::equal(number("label"), torch::tensor({{7L}, {9L}})));
  EXPECT_EQ(number("points").sizes(), (torch::IntArrayRef{2, 6}));
  EXPECT_TRUE(torch::equal(number("points").to_dense()[1], torch::tensor({7.0F, 8.0F, 0.0F, 0.0F, 0.0F, 0.0F})));
  EXPECT_EQ(number("sequence").sizes(), (torch::IntArrayRef{2, 0, 2})) << "neither record has it";
  EXPECT_TRUE(torch::equal(number("sparse").to_dense(),
                           torch::tensor({{0.0F, 0.25F, 0.0F, 0.0F, 0.5F}, {2.0F, 0.0F, 0.0F, 0.0F, 0.0F}})));
  EXPECT_EQ(std::get<std::vector<std::vector<std::string>>>(parsed.at("names")),
            (std::vector<std::vector<std::string>>{{"a", "bc"}, {}}));
  EXPECT_EQ(std::get<std::vector<std::string>>(parsed.at("text")), (std::vector<std::string>{"-", "-"}));
}

TEST(ParseExampleTest, ShorterSequencesAreFilledUp) {
  TFExample other;
  other.set_floats("points", {7.0F, 8.0F});
  const std::string first = record(), second = other.serialize();
  const auto filled = [&](const io::FixedLenSequenceFeature& form, const char* name) {
    return io::parse_example({first, second}, {{name, form}}).at(name);
  };
  const io::FixedLenSequenceFeature pairs{.shape = {2}, .allow_missing = true, .default_value = torch::tensor(-1.0F)};
  EXPECT_TRUE(torch::equal(
      std::get<torch::Tensor>(filled(pairs, "points")),
      torch::tensor({{{1.0F, 2.0F}, {3.0F, 4.0F}, {5.0F, 6.0F}}, {{7.0F, 8.0F}, {-1.0F, -1.0F}, {-1.0F, -1.0F}}})));
  const io::FixedLenSequenceFeature texts{.dtype = FeatureDtype::kString, .allow_missing = true};
  EXPECT_EQ(std::get<std::vector<std::string>>(filled(texts, "names")), (std::vector<std::string>{"a", "bc", "", ""}));
  expect_error<InvalidArgument>([&] { filled({.shape = {2}}, "points"); }, "without allow_missing");
  expect_error<InvalidArgument>(
      [&] { filled({.shape = {2}, .allow_missing = true, .default_value = torch::ones(2)}, "points"); },
      "is no single number");
}

TEST(ParseExampleTest, AnEmptyBatchAndErrors) {
  const std::vector<std::string_view> none;
  const auto parsed =
      io::parse_example(none, {{"points", io::FixedLenFeature{.shape = {2}}}, {"any", io::VarLenFeature{}}});
  EXPECT_EQ(std::get<torch::Tensor>(parsed.at("points")).sizes(), (torch::IntArrayRef{0, 2}));
  EXPECT_EQ(std::get<torch::Tensor>(parsed.at("any")).sizes(), (torch::IntArrayRef{0, 0}));
  const std::string good = record();
  expect_error<DataLoss>([&] { io::parse_example({good, "no record"}, {}, "file"); }, "file 1");
  expect_error<DataLoss>(
      [&] {
        io::parse_example({good}, {{"no", io::FixedLenFeature{}}}, "file");
      },
      "file 0: the feature \"no\" is not there");
}

}  // namespace
}  // namespace cohort::parse_example_test
