// preprocess_input() and decode_predictions(), held to Keras and torchvision.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/train.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/wings/functional/train/applications_facts.h"

namespace cohort::application_inputs_test {
namespace {

using namespace applications;
using nlohmann::json;
using testing::drawn;
using testing::expect_error;
using testing::expect_few;
using testing::facts;
using testing::TemporaryFolder;

TEST(ApplicationInputs, PreparePicturesAndNameClasses) {
  const json keras = facts("keras");
  const json prepared = keras.at("preprocess_input");
  const torch::Tensor pixels = (drawn("picture", {2, 3, 4, 5}) + 1.0) * 127.5;
  expect_few(resnet::preprocess_input(pixels), prepared.at("resnet"));
  expect_few(mobilenet_v2::preprocess_input(pixels), prepared.at("mobilenet_v2"));
  expect_few(mobilenet::preprocess_input(pixels), prepared.at("mobilenet"));
  expect_few(resnet_v2::preprocess_input(pixels), prepared.at("resnet_v2"));
  expect_few(vgg16::preprocess_input(pixels), prepared.at("vgg16"));
  expect_few(densenet::preprocess_input(pixels), prepared.at("densenet"));
  expect_few(applications::torchvision::preprocess_input(pixels), facts("torchvision").at("preprocess_input"));
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const SymbolicTensor input = Input({3, -1, -1});
  const FunctionalOptions kDouble = {.dtype = torch::kDouble};
  expect_few(Functional(input, resnet::preprocess_input(input), kDouble)(pixels), prepared.at("resnet"));
  expect_few(Functional(input, mobilenet_v2::preprocess_input(input), kDouble)(pixels), prepared.at("mobilenet_v2"));
  expect_error<InvalidArgument>([&] { resnet::preprocess_input(pixels.permute({0, 2, 3, 1})); }, "[..., 3, height");

  const TemporaryFolder folder;
  json classes;
  for (int i = 0; i < 1000; ++i) {
    std::string number = std::to_string(i);
    classes[number] = {"n" + std::string(8 - number.size(), '0') + number, "class " + number};
  }
  const auto file = folder / "imagenet_class_index.json";
  testing::write_file(file, classes.dump());
  const torch::Tensor predictions = drawn("predictions", {2, 1000});
  json decoded;
  for (const auto& row : resnet::decode_predictions(predictions, file, 3)) {
    json& list = decoded.emplace_back();
    for (const Prediction& each : row) list.push_back({each.class_name, each.description, each.score});
  }
  EXPECT_EQ(decoded, keras.at("decode_predictions"));
  expect_error<InvalidArgument>([&] { decode_predictions(predictions.slice(1, 0, 10), file); }, "[examples, 1000]");
  expect_error<InvalidArgument>([&] { decode_predictions(predictions, file, 0); }, "top is 0");
  expect_error<NotFound>([&] { decode_predictions(predictions, folder / "none.json"); }, "none.json");
  for (const char* damaged : {"", "[]", R"({"0": ["a"]})", R"({"1": ["a", "b"]})", R"({"0": ["a", 1]})", "{}"}) {
    testing::write_file(file, damaged);
    expect_error<DataLoss>([&] { decode_predictions(predictions, file); }, file.string());
  }
}

}  // namespace
}  // namespace cohort::application_inputs_test
