#include "cohort/data/tfds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/data/tf_example.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "wings/records/data/readers/split_spec.h"

namespace cohort::tfds_test {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;
using testing::write_file;

TEST(SplitSpec, PartsAreThoseOfTensorFlowDatasets) {
  const std::map<std::string, int64_t> sizes = {{"train", 1001}, {"test", 10}};
  const auto parse = [&](std::string_view spec) { return parse_split(spec, sizes); };
  using Parts = std::vector<SplitPart>;
  EXPECT_EQ(parse("train"), (Parts{{"train", 0, 1001}}));
  EXPECT_EQ(parse("train[:80%]"), (Parts{{"train", 0, 801}}));
  EXPECT_EQ(parse("train[80%:]"), (Parts{{"train", 801, 1001}}));
  EXPECT_EQ(parse("train[-5%:]"), (Parts{{"train", 951, 1001}}));
  EXPECT_EQ(parse("train[100:200]"), (Parts{{"train", 100, 200}}));
  EXPECT_EQ(parse("train[:-1]"), (Parts{{"train", 0, 1000}}));
  EXPECT_EQ(parse("test[5:5000]+train[:1]"), (Parts{{"test", 5, 10}, {"train", 0, 1}}));
  EXPECT_EQ(parse("test[:]"), (Parts{{"test", 0, 10}}));
  expect_error<NotFound>([&] { (void)parse("validation"); }, "there is no \"validation\", only test, train");
  expect_error<InvalidArgument>([&] { (void)parse("test[7:7]"); }, "there is no example in test[7:7] of 10");
  expect_error<InvalidArgument>([&] { (void)parse("test[:120%]"); }, "120% is more than all of it");
  expect_error<InvalidArgument>([&] { (void)parse("test[:x]"); }, "\"x\" is no number of examples");
  expect_error<InvalidArgument>([&] { (void)parse("test[3]"); }, "no [from:to]");
  expect_error<InvalidArgument>([&] { (void)parse("test[1:2"); }, "no [from:to]");
  expect_error<NotFound>([&] { (void)parse("test+"); }, "there is no \"\"");
}

// Numbers 0 to 9 in three shards, with twice the number as the label.
class Folder {
 public:
  Folder() {
    write_file(path() / "dataset_info.json",
               R"({"name": "numbers", "version": "1.0.0", "supervisedKeys": {"tuple": {"items": [
                   {"featureKey": "value"}, {"featureKey": "label"}]}},
                   "splits": [{"name": "train", "shardLengths": ["4", "4", "2"]}]})");
    write_file(path() / "features.json",
               R"({"featuresDict": {"features": {
                   "value": {"pythonClassName": "tensorflow_datasets.core.features.tensor_feature.Tensor"},
                   "label": {"pythonClassName": "tensorflow_datasets.core.features.class_label_feature.ClassLabel",
                             "classLabel": {"numClasses": "20"}}}}})");
    write_file(path() / "label.labels.txt", "zero\none\n");
    for (int64_t shard = 0; shard < 3; ++shard) {
      TFRecordWriter writer(path() / ("numbers-train.tfrecord-0000" + std::to_string(shard) + "-of-00003"));
      for (int64_t i = shard * 4; i < std::min<int64_t>(10, shard * 4 + 4); ++i) {
        TFExample example;
        example.set_floats("value", {static_cast<float>(i)});
        example.set_int64s("label", {2 * i});
        writer.write(example.serialize());
      }
      writer.close();
    }
  }
  std::filesystem::path path() const { return folder_.path() / "1.0.0"; }
  std::filesystem::path above() const { return folder_.path(); }

 private:
  struct Made : TemporaryFolder {
    Made() { std::filesystem::create_directories(path() / "1.0.0"); }
  };
  Made folder_;
};

std::vector<int64_t> labels(const Dataset& dataset) {
  std::vector<int64_t> list;
  for (const Example& example : dataset) {
    EXPECT_EQ(example.x.item<double>() * 2, example.y.item<double>());
    EXPECT_EQ(example.y.dim(), 0);
    list.push_back(example.y.item<int64_t>() / 2);
  }
  return list;
}

TEST(TFDS, AFolderIsRead) {
  const Folder folder;
  const TFDSFolder numbers(folder.above());
  EXPECT_EQ(numbers.name(), "numbers");
  EXPECT_EQ(numbers.version(), "1.0.0");
  EXPECT_EQ(numbers.num_classes(), 20);
  EXPECT_EQ(numbers.class_names(), (std::vector<std::string>{"zero", "one"}));
  EXPECT_EQ(numbers.splits(), (std::map<std::string, int64_t>{{"train", 10}}));
  EXPECT_EQ(labels(numbers.split("train")), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(labels(numbers.split("train[30%:90%]")), (std::vector<int64_t>{3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(labels(numbers.split("train[-1:]+train[:2]", {.threads = {.num_parallel_calls = 2}})),
            (std::vector<int64_t>{9, 0, 1}));
  EXPECT_EQ(numbers.split("train[30%:90%]").cardinality(), 6);
}

TEST(TFDS, APositionInAPartIsFoundAgain) {
  const Folder folder;
  const Dataset part = TFDSFolder(folder.path()).split("train[3:9]");
  for (int done = 0; done <= 6; ++done) {
    Iterator iterator = part.iterator();
    for (int i = 0; i < done; ++i) (void)iterator.next();
    Iterator other = part.iterator();
    other.restore(iterator.save());
    for (int64_t i = 3 + done; i < 9; ++i) EXPECT_EQ(other.next()->y.item<int64_t>(), 2 * i);
    EXPECT_FALSE(other.next());
  }
}

TEST(TFDS, WhatIsMissingOrDamagedIsNamed) {
  const Folder folder;
  expect_error<NotFound>([] { TFDSFolder("/nowhere"); }, "/nowhere: there is no dataset_info.json");
  const auto shard = folder.path() / "numbers-train.tfrecord-00001-of-00003";
  const std::string good = testing::read_file(shard);
  const TFDSFolder numbers(folder.path());
  write_file(shard, good.substr(0, good.size() / 4 * 2));
  expect_error<DataLoss>([&] { (void)labels(numbers.split("train")); }, "there are fewer records than the 4");
  std::filesystem::remove(shard);
  expect_error<NotFound>([&] { (void)numbers.split("train"); }, "00001-of-00003: there is no such file");
  EXPECT_EQ(labels(numbers.split("train[:4]")).size(), 4U) << "of another shard";
  write_file(folder.path() / "features.json", "{");
  expect_error<DataLoss>([&] { TFDSFolder{folder.path()}; }, "features.json: is no JSON object");
  write_file(folder.path() / "features.json", "{}");
  expect_error<DataLoss>([&] { TFDSFolder{folder.path()}; }, "its description is damaged");
  write_file(folder.path() / "features.json",
             R"({"featuresDict": {"features": {"value": {"pythonClassName": "a.Video"}, "label": {}}}})");
  expect_error<Unimplemented>([&] { TFDSFolder{folder.path()}; }, "\"value\" is a Video");
}

TEST(TFDS, NumbersThatCannotBeAreRefused) {
  const Folder folder;
  const auto refuse = [&](const std::string& splits, const std::string& classes, const std::string& part) {
    write_file(folder.path() / "dataset_info.json",
               R"({"name": "numbers", "supervisedKeys": {"tuple": {"items": [{"featureKey": "label"}]}}, "splits": [)" +
                   splits + "]}");
    write_file(folder.path() / "features.json",
               R"({"featuresDict": {"features": {"label": {"pythonClassName": "a.ClassLabel",
                   "classLabel": {"numClasses": )" +
                   classes + "}}}}}");
    expect_error<DataLoss>([&] { TFDSFolder{folder.path()}; }, part);
  };
  const auto train = [](const std::string& lengths) {
    return R"({"name": "train", "shardLengths": [)" + lengths + "]}";
  };
  refuse(train("4, -4"), "2", "a number of a TFDS description is -4, wanted an integer of 0 or more");
  refuse(train("18446744073709551615"), "2", "wanted an integer of 0 or more");
  refuse(train("1e300"), "2", "wanted an integer of 0 or more");
  refuse(train(R"("-1")"), "2", "wanted an integer of 0 or more");
  refuse(train(R"("4x")"), "2", "is \"4x\", which is no number of this kind");
  refuse(train(R"("9223372036854775807", "1")"), "2", "\"train\" has more examples than can be counted");
  refuse(train("4") + "," + train("4"), "2", "\"train\" is there twice");
  refuse(train("4"), "-3", "wanted an integer of 0 or more");
}

TEST(TFDS, ALabelThatIsNoClassIsNamedByItsRecord) {
  const Folder folder;
  const TFDSFolder numbers(folder.path());
  EXPECT_EQ(labels(numbers.split("train[:5]", {.num_classes = 9})).size(), 5U);
  Iterator iterator = numbers.split("train[4:6]", {.num_classes = 9}).iterator();
  (void)iterator.next();
  const std::string message = testing::error_of<DataLoss>([&] { (void)iterator.next(); });
  EXPECT_NE(message.find("00001-of-00003, record at byte "), std::string::npos) << message;
  EXPECT_NE(message.find("the label is 10, wanted 0 to 8 (9 classes)"), std::string::npos) << message;
}

TEST(TFDS, ADamagedImageIsNamedByItsRecord) {
  const Folder folder;
  write_file(folder.path() / "features.json",
             R"({"featuresDict": {"features": {"value": {"pythonClassName": "a.Image"},
                 "label": {"pythonClassName": "a.ClassLabel", "classLabel": {"numClasses": "20"}}}}})");
  {
    TFRecordWriter writer(folder.path() / "numbers-train.tfrecord-00002-of-00003");
    TFExample example;
    example.set_bytes("value", {"\xff\xd8\xff no more"});
    example.set_int64s("label", {1});
    writer.write(example.serialize());
    writer.write(example.serialize());
    writer.close();
  }
  Iterator iterator = TFDSFolder(folder.path()).split("train[9:]").iterator();
  expect_error<DataLoss>([&] { (void)iterator.next(); }, "00002-of-00003, record at byte 6");
  TFDSOptions skipping;
  skipping.records.skip_damaged = true;
  EXPECT_FALSE(TFDSFolder(folder.path()).split("train[9:]", skipping).iterator().next());
}

TEST(TFDS, CifarIsRead) {
  const auto folder = testing::real_data("tfds/cifar10");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no CIFAR-10 in " << folder;
  const TFDSFolder cifar(folder);
  EXPECT_EQ(cifar.splits(), (std::map<std::string, int64_t>{{"test", 10'000}, {"train", 50'000}}));
  EXPECT_EQ(cifar.class_names().size(), 10U);
  const Dataset part = cifar.split("train[39%:41%]+test[:100]");
  EXPECT_EQ(part.cardinality(), 1'100);
  torch::Tensor counts = torch::zeros({10}, torch::kLong);
  for (const Example& example : part) {
    EXPECT_EQ(example.x.sizes(), (std::vector<int64_t>{3, 32, 32}));
    counts[example.y.item<int64_t>()] += 1;
  }
  EXPECT_GT(counts.min().item<int64_t>(), 50);
}

}  // namespace
}  // namespace cohort::tfds_test
