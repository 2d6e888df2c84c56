// Every model of image classification takes any data that the library reads.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/data/image.h"
#include "cohort/error.h"
#include "cohort/mirrored.h"
#include "cohort/models/image_classification.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::channels_test {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;
using testing::write_file;

std::string big_endian(int64_t number) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(number >> shift));
  return bytes;
}

void write_mnist(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  for (const std::string part : {"train", "t10k"}) {
    write_file(folder / (part + "-labels-idx1-ubyte"),
               std::string("\0\0\x08\x01", 4) + big_endian(4) + std::string("\0\1\2\3", 4));
    write_file(folder / (part + "-images-idx3-ubyte"), std::string("\0\0\x08\x03", 4) + big_endian(4) + big_endian(28) +
                                                           big_endian(28) + std::string(4 * 784, '\x40'));
  }
}

void write_cifar10(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const std::string records = "\1" + std::string(3072, 'a') + "\2" + std::string(3072, 'b');
  for (int i = 1; i <= 5; ++i) write_file(folder / ("data_batch_" + std::to_string(i) + ".bin"), records);
  write_file(folder / "test_batch.bin", records);
}

// Grey and coloured ones side by side.
void write_images(const std::filesystem::path& folder) {
  for (const char* name : {"a", "b"}) {
    std::filesystem::create_directories(folder / name);
    for (int i = 0; i < 4; ++i) {
      const auto image = torch::full({i % 2 == 0 ? 1 : 3, 30, 40}, 60 * i, torch::kByte);
      write_file(folder / name / (std::to_string(i) + ".png"), encode_png(image));
    }
  }
}

class ChannelsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write_mnist(folder_ / "mnist");
    write_cifar10(folder_ / "cifar");
    write_images(folder_ / "images");
  }

  ImageClassificationTask task(const std::string& model, const std::vector<int64_t>& size, const std::string& data) {
    ImageClassificationTask made;
    made.model.backbone.type = model;
    made.model.input_size = size;
    made.model.num_classes = 10;
    made.model.input_mean = std::vector<double>(static_cast<std::size_t>(size.at(2)), 0.5);
    made.model.input_stddev = made.model.input_mean;
    made.train_data.global_batch_size = made.validation_data.global_batch_size = 2;
    made.train_data.held_out = 0.25;
    if (data == "digits") {
      made.builtin_data = data;
    } else {
      made.train_data.input_path = (folder_ / data).string();
    }
    return made;
  }

  TemporaryFolder folder_;
};

TEST_F(ChannelsTest, EveryModelTakesAnyData) {
  const MirroredStrategy strategy({.devices = cpu_devices(1)});
  for (const char* model : {"mlp", "cnn", "resnet_cifar"}) {
    for (const std::vector<int64_t>& size : {std::vector<int64_t>{28, 28, 1}, {32, 32, 1}, {32, 32, 3}}) {
      for (const char* data : {"mnist", "cifar", "images"}) {
        SCOPED_TRACE(c10::str(model, " of ", size, " from ", data));
        ImageClassificationTask made = task(model, size, data);
        const auto scope = strategy.scope();
        Model built = made.build_model();
        const TaskData inputs = made.build_inputs({}, /*training=*/true);
        for (const Dataset* dataset : {&*inputs.train, &*inputs.validation}) {
          const auto batch = dataset->iterator().next();
          ASSERT_TRUE(batch.has_value());
          EXPECT_EQ(built.predict(batch->x).sizes(), (std::vector<int64_t>{batch->size(), 10}));
        }
      }
    }
  }
}

TEST_F(ChannelsTest, DigitsThatAreDrawnAreDataForAnyModelToo) {
  ImageClassificationTask made = task("resnet_cifar", {32, 32, 3}, "digits");
  const TaskData inputs = made.build_inputs({}, /*training=*/true);
  EXPECT_EQ(inputs.train->iterator().next()->x.sizes(), (std::vector<int64_t>{2, 3, 32, 32}));
  EXPECT_EQ(inputs.validation->iterator().next()->x.sizes(), (std::vector<int64_t>{2, 3, 32, 32}));
}

TEST_F(ChannelsTest, GreyIsRepeatedAndColoursBecomeTheirBrightness) {
  ImageClassificationTask colours = task("resnet_cifar", {28, 28, 3}, "mnist");
  const torch::Tensor x = colours.build_inputs({}, false).validation->iterator().next()->x;
  EXPECT_EQ(x.sizes(), (std::vector<int64_t>{2, 3, 28, 28}));
  EXPECT_TRUE(torch::allclose(x, torch::full_like(x, (0x40 / 255.0 - 0.5) / 0.5)));
  ImageClassificationTask plane = task("mlp", {32, 32, 1}, "cifar");
  const torch::Tensor grey = plane.build_inputs({}, false).validation->iterator().next()->x;
  EXPECT_EQ(grey.sizes(), (std::vector<int64_t>{2, 32, 32}));
  EXPECT_NEAR(grey[0][5][5].item<double>(), ('a' / 255.0 - 0.5) / 0.5, 0.02);
}

TEST_F(ChannelsTest, ASizeOfTwoNumbersIsRefused) {
  ImageClassificationTask made = task("mlp", {28, 28, 1}, "digits");
  made.model.input_size = {28, 28};
  expect_error<InvalidArgument>([&] { (void)made.build_inputs({}, true); },
                                "task.model.input_size is [28, 28], wanted height, width and channels");
}

}  // namespace
}  // namespace cohort::channels_test
