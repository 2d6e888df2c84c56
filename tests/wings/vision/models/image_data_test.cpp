// These tests are about what the keys of task.train_data and task.validation_data do to the batches.
#include "cohort/models/image_classification.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "cohort/data/image.h"
#include "cohort/data/tf_example.h"
#include "cohort/data/tfrecord.h"
#include "cohort/error.h"
#include "data/node.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::image_data_test {
namespace {

using cohort::testing::expect_error;
using cohort::testing::TemporaryFolder;

constexpr int64_t kRecords = 6;  // of a file

// Files train-0, train-1, ... of records whose label is the number of the file and whose colour the number of the
// record.
void write_records(const std::filesystem::path& folder, const std::string& name, int64_t files,
                   const std::string& image = "image/encoded", const std::string& label = "image/class/label") {
  for (int64_t file = 0; file < files; ++file) {
    TFRecordWriter writer(folder / (name + "-" + std::to_string(file)));
    for (int64_t i = 0; i < kRecords; ++i) {
      TFExample example;
      example.set_bytes(image, {encode_png(torch::full({3, 8, 8}, 40 * i, torch::kByte))});
      example.set_int64s(label, {file});
      writer.write(example.serialize());
    }
    writer.close();
  }
}

class ImageDataTest : public ::testing::Test {
 protected:
  ImageDataTest() {
    write_records(folder_.path(), "train", 3);
    write_records(folder_.path(), "valid", 2);
  }

  // Returns the data of the task with these lines of YAML over what all have in common.
  TaskData data(const std::string& yaml, bool training = true) {
    task_ = std::make_shared<ImageClassificationTask>();
    Config config([&](ConfigFields& fields) { fields.nest("task", *task_); });
    config.apply_override(
        "task.model.num_classes=3,task.model.input_size=[8,8,3],task.model.input_mean=[0,0,0],"
        "task.model.input_stddev=[1,1,1],task.train_data.global_batch_size=6,task.validation_data.global_batch_size=6,"
        "task.train_data.aug_crop=none,task.train_data.aug_rand_hflip=false,"
        "task.train_data.input_path='" +
        (folder_ / "train*").string() + "',task.validation_data.input_path='" + (folder_ / "valid*").string() + "'");
    config.apply_yaml(yaml, "test");
    config.lock();
    return task_->build_inputs(RuntimeConfig{}, training);
  }
  Example train(const std::string& yaml) { return *data(yaml).train->iterator().next(); }
  std::vector<int64_t> validated(const std::string& yaml) {
    std::vector<int64_t> labels;
    const TaskData made = data(yaml);
    for (const Example& batch : *made.validation) {
      for (int64_t i = 0; i < batch.y.size(0); ++i) labels.push_back(batch.y[i].item<int64_t>());
    }
    return labels;
  }

  TemporaryFolder folder_;
  std::shared_ptr<ImageClassificationTask> task_;
};

using Labels = std::vector<int64_t>;

TEST_F(ImageDataTest, PatternsNameFilesOfRecords) {
  EXPECT_EQ(validated("{}"), (Labels{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}));
  const std::string first = (folder_ / "train-0").string(), second = (folder_ / "train-[12]").string();
  EXPECT_EQ(validated("task: {validation_data: {input_path: '" + first + "'}}"), (Labels{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(validated("task: {validation_data: {input_path: '" + second + ", " + first + "'}}").size(), 18U);
  EXPECT_EQ(train("{}").x.sizes(), (std::vector<int64_t>{6, 3, 8, 8}));
  expect_error<NotFound>([&] { data("task: {train_data: {input_path: 'nowhere/train*'}}"); },
                         "input_path has nowhere/train*, which no file fits");
  expect_error<InvalidArgument>([&] { data("task: {train_data: {input_path: 'gs://bucket/train*'}}"); },
                                "=gs://bucket/train* is an address of gs, wanted a folder or files");
  expect_error<InvalidArgument>([&] { data("task: {validation_data: {input_path: ''}}"); },
                                "which are to validate with? task.validation_data.input_path is empty");
}

TEST_F(ImageDataTest, FilesAreReadInTurns) {
  const auto turns = [&](const std::string& keys) { return validated("task: {validation_data: {" + keys + "}}"); };
  EXPECT_EQ(turns("cycle_length: 1"), (Labels{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(turns("cycle_length: 2, block_length: 2"), (Labels{0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1}));
}

TEST_F(ImageDataTest, KeysOfTheFeatures) {
  write_records(folder_.path(), "other", 1, "picture", "kind");
  const std::string path = "task: {validation_data: {input_path: '" + (folder_ / "other*").string() + "', ";
  expect_error<NotFound>([&] { validated(path + "image_field_key: picture}}"); }, "image/class/label");
  EXPECT_EQ(validated(path + "image_field_key: picture, label_field_key: kind}}").size(), 6U);
  expect_error<InvalidArgument>([&] { validated(path + "file_type: sstable}}"); }, "wanted one of tfrecord");
}

TEST_F(ImageDataTest, ALabelThatIsNoClassIsNamedByItsRecord) {
  expect_error<DataLoss>([&] { validated("task: {model: {num_classes: 1}}"); },
                         "valid-1, record at byte 0: the label is 1, wanted 0 to 0 (1 classes)");
}

TEST_F(ImageDataTest, DamagedRecordsAndPicturesAreLeftOutWhereThatIsAskedFor) {
  const auto file = folder_ / "odd";
  const auto write_odd = [&](const std::string& record) {
    TFRecordWriter writer(file);
    TFExample good;
    good.set_bytes("image/encoded", {encode_png(torch::zeros({3, 8, 8}, torch::kByte))});
    good.set_int64s("image/class/label", {2});
    writer.write(good.serialize());
    writer.write(record);
    writer.write(good.serialize());
    writer.close();
  };
  const std::string path = "task: {validation_data: {input_path: '" + file.string() + "', skip_damaged: ";
  TFExample example;
  example.set_int64s("image/class/label", {1});
  for (const char* picture : {"", "GIF89a"}) {
    example.set_bytes("image/encoded", {picture});
    write_odd(example.serialize());
    EXPECT_EQ(validated(path + "true}}"), (Labels{2, 2})) << picture;
    expect_error<DataLoss>([&] { validated(path + "false}}"); }, "neither a JPEG nor a PNG");
  }
  write_odd("");
  EXPECT_EQ(validated(path + "true}}"), (Labels{2, 2}));
  expect_error<DataLoss>([&] { validated(path + "false}}"); }, "the example has no features");
}

TEST_F(ImageDataTest, ALabelThatIsMissingOrNoNumberIsNamedByItsRecord) {
  const auto file = folder_ / "odd";
  const auto error = [&](const auto& label) {
    TFExample example;
    example.set_bytes("image/encoded", {encode_png(torch::zeros({3, 8, 8}, torch::kByte))});
    label(example);
    TFRecordWriter writer(file);
    writer.write(example.serialize());
    writer.close();
    return testing::error_of<Error>(
        [&] { validated("task: {validation_data: {skip_damaged: true, input_path: '" + file.string() + "'}}"); });
  };
  const std::string record = file.string() + ", record at byte 0: ";
  const auto expect_said = [&](const std::string& said, const std::string& wanted) {
    EXPECT_NE(said.find(record + wanted), std::string::npos) << said;
  };
  expect_said(error([](TFExample&) {}), "there is no feature \"image/class/label\" among image/encoded");
  expect_said(error([](TFExample& e) { e.set_floats("image/class/label", {1.0F}); }),
              "the feature "
              "\"image/class/label\" holds floats, wanted integers");
  expect_said(error([](TFExample& e) {
                e.set_int64s("image/class/label", {1, 2});
              }),
              "the feature "
              "\"image/class/label\" has 2 values, wanted one");
}

TEST_F(ImageDataTest, SeedOfTheData) {
  const auto drawn = [&](const char* seed) { return train(std::string("task: {train_data: {seed: ") + seed + "}}").x; };
  EXPECT_TRUE(torch::equal(drawn("-1"), drawn("1")));  // runtime.seed
  EXPECT_TRUE(torch::equal(drawn("7"), drawn("7")));
  EXPECT_FALSE(torch::equal(drawn("7"), drawn("8")));
}

TEST_F(ImageDataTest, DtypeShardingAndPrefetching) {
  EXPECT_EQ(train("{}").x.scalar_type(), torch::kFloat);
  EXPECT_EQ(train("task: {train_data: {dtype: bfloat16}}").x.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(train("task: {train_data: {dtype: float16}}").x.scalar_type(), torch::kHalf);
  EXPECT_EQ(data("task: {validation_data: {dtype: float16}}").validation->iterator().next()->x.scalar_type(),
            torch::kHalf);
  EXPECT_TRUE(data("{}").shard_train);
  EXPECT_FALSE(data("task: {train_data: {sharding: false}}").shard_train);
  EXPECT_FALSE(data("task: {validation_data: {sharding: false}}").shard_validation);
  for (const char* ahead : {"-1", "0", "3"}) {
    EXPECT_EQ(train(std::string("task: {train_data: {prefetch_buffer_size: ") + ahead + "}}").x.size(0), 6);
  }
  expect_error<InvalidArgument>([&] { data("task: {train_data: {deterministic: false}}"); }, "wanted == true");
}

TEST_F(ImageDataTest, RandAugmentByModelGardensKeys) {
  const torch::Tensor plain = train("{}").x;
  const auto changed = [&](const std::string& keys) {
    return !torch::equal(plain, train("task: {train_data: {aug_type: {type: randaug, randaug: {" + keys + "}}}}").x);
  };
  const std::string all_but =
      "num_layers: 4, exclude_ops: [Cutout, ShearX, ShearY, Rotate, Brightness, Color, Contrast, "
      "Sharpness, Posterize, Solarize, AutoContrast, Equalize";
  EXPECT_TRUE(changed("num_layers: 4"));
  EXPECT_FALSE(changed("num_layers: 0"));
  EXPECT_FALSE(changed(all_but + ", TranslateX, TranslateY]"));
  EXPECT_TRUE(changed(all_but + "]"));
  EXPECT_FALSE(changed(all_but + "], translate_const: 0"));
  EXPECT_FALSE(changed(all_but + "], magnitude: 0"));
  EXPECT_FALSE(torch::equal(train("task: {train_data: {aug_type: {type: randaug, randaug: {magnitude: 2}}}}").x,
                            train("task: {train_data: {aug_type: {type: randaug, randaug: {magnitude: 9}}}}").x));
  EXPECT_TRUE(torch::equal(train("task: {train_data: {aug_type: {type: randaug, randaug: {magnitude: 5}}}}").x,
                           train("task: {train_data: {aug_policy: randaug, randaug_magnitude: 5}}").x));
  expect_error<NotFound>([&] { changed("exclude_ops: [Sher]"); }, "no operation \"Sher\" to exclude");
  expect_error<InvalidArgument>([&] { changed("magnitude_std: 0.5"); }, "magnitude_std is 0.5 (test), wanted == 0");
}

TEST_F(ImageDataTest, ImagesMayBeChangedOnTheDevices) {
  const auto left = [](const Dataset& batches) { return batches.node()->left_to_devices().map != nullptr; };
  for (const char* keys :
       {"aug_crop: padded, aug_rand_hflip: true", "aug_crop: padded, aug_crop_padding_mode: edge, dtype: float16",
        "aug_crop: resized, aug_rand_hflip: true", "aug_crop: padded, brightness: 0.5", "aug_crop: none"}) {
    const auto both = [&](const std::string& more) {
      const std::string all = std::string(keys) + more;
      return data("task: {train_data: {seed: 3, " + all + "}, validation_data: {" + all + "}}");
    };
    const TaskData here = both("");
    const TaskData there = both(", images_on_device: true");
    EXPECT_FALSE(left(*here.train) || left(*here.validation));
    EXPECT_TRUE(left(*there.train) && left(*there.validation));
    EXPECT_TRUE(torch::equal(there.train->iterator().next()->x, here.train->iterator().next()->x)) << keys;
    EXPECT_TRUE(torch::equal(there.validation->iterator().next()->x, here.validation->iterator().next()->x)) << keys;
  }
  expect_error<InvalidArgument>(
      [&] { train("task: {train_data: {images_on_device: true, mixup_and_cutmix: {mixup_alpha: 0.1}}}"); },
      "images_on_device is true, but mixup and cutmix mix images");
}

// Each label's largest share.
torch::Tensor largest(const Example& batch) {
  return std::get<0>(batch.y.max(1));
}

TEST_F(ImageDataTest, MixupAndCutmix) {
  const auto mixed = [&](const std::string& keys) {
    return train("task: {train_data: {seed: 3, mixup_and_cutmix: {" + keys + "}}}");
  };
  const Example mixup = mixed("mixup_alpha: 5"), cutmix = mixed("cutmix_alpha: 5");
  EXPECT_LT(largest(mixup).min().item<float>(), 1.0F);
  EXPECT_TRUE(torch::equal(mixed("mixup_alpha: 5, cutmix_alpha: 5, switch_prob: 0").y.sum(1), torch::ones(6)));
  const auto pasted = [](const Example& batch) {  // makes no colours that were not there
    const torch::Tensor colours = batch.x * (255.0 / 40.0);
    return torch::allclose(colours, torch::round(colours), 0.0, 1e-3);
  };
  EXPECT_TRUE(pasted(cutmix));
  EXPECT_FALSE(pasted(mixup));
  EXPECT_FALSE(pasted(mixed("mixup_alpha: 5, cutmix_alpha: 5, switch_prob: 0")));
  EXPECT_TRUE(pasted(mixed("mixup_alpha: 5, cutmix_alpha: 5, switch_prob: 1")));
  EXPECT_EQ(largest(mixed("mixup_alpha: 5, prob: 0")).min().item<float>(), 1.0F);
}

TEST_F(ImageDataTest, LabelsAndLosses) {
  const auto loss = [&](const std::string& keys) {
    data("task: {" + keys + "}");
    return *task_->build_loss();
  };
  const torch::Tensor prediction = torch::tensor({{2.0, 1.0, 0.0}}), y = torch::tensor({{1.0, 0.0, 0.0}});
  const auto value = [&](const std::string& keys) { return loss(keys)(y, prediction).item<double>(); };
  EXPECT_EQ(loss("model: {}").name(), "sparse_categorical_crossentropy");
  EXPECT_EQ(loss("losses: {one_hot: true}").name(), "categorical_crossentropy");
  EXPECT_EQ(train("task: {losses: {one_hot: true}}").y.sizes(), (std::vector<int64_t>{6, 3}));
  EXPECT_FLOAT_EQ(value("losses: {one_hot: true, loss_weight: 3}"), 3.0 * value("losses: {one_hot: true}"));
  const std::string soft = "train_data: {mixup_and_cutmix: {mixup_alpha: 1, label_smoothing: 0.3}}, losses: {";
  EXPECT_DOUBLE_EQ(value(soft + "soft_labels: true}"), value("losses: {label_smoothing: 0.3}"));
  EXPECT_DOUBLE_EQ(value(soft + "soft_labels: true, label_smoothing: 0.3}"), value("losses: {label_smoothing: 0.3}"));
  expect_error<InvalidArgument>([&] { loss(soft + "soft_labels: true, label_smoothing: 0.1}"); },
                                "label_smoothing counts");
  expect_error<InvalidArgument>([&] { loss(soft + "label_smoothing: 0.3}"); },
                                "counts with task.losses.soft_labels only");
  expect_error<InvalidArgument>([&] { loss("losses: {soft_labels: true}"); }, "mixup_and_cutmix makes, which is off");
}

void write_photographs(const std::filesystem::path& folder, int64_t count) {
  for (const char* name : {"cat", "dog"}) {
    std::filesystem::create_directories(folder / name);
    for (int64_t i = 0; i < count; ++i) {
      testing::write_file(folder / name / (std::to_string(i) + ".png"),
                          encode_png(torch::ones({3, 8, 8}, torch::kByte)));
    }
  }
}

TEST_F(ImageDataTest, DataToValidateWithMayLieElsewhere) {
  write_photographs(folder_ / "photos", 15);
  write_photographs(folder_ / "others", 4);
  const std::string photos = "task: {train_data: {input_path: '" + (folder_ / "photos").string() + "'}, ";
  const TaskData one = data(photos + "validation_data: {input_path: ''}}");
  EXPECT_EQ(one.steps_per_epoch, 4);  // 24 photographs of 30
  const TaskData two = data(photos + "validation_data: {input_path: '" + (folder_ / "others").string() + "'}}");
  EXPECT_EQ(two.steps_per_epoch, 5);
  EXPECT_EQ(two.validation->cardinality(), 2);
  expect_error<NotFound>([&] { data(photos + "validation_data: {input_path: nowhere}}"); }, "nowhere is not a folder");
  expect_error<NotFound>([&] { data(photos + "validation_data: {input_path: '', tfds_name: cats}}"); },
                         "has no dataset_info.json");
}

TEST_F(ImageDataTest, ClassesOfTheDataToValidateWithGoByName) {
  write_photographs(folder_ / "photos", 6);
  std::filesystem::create_directories(folder_ / "others" / "cat");  // empty, or not there: the same
  std::filesystem::create_directories(folder_ / "others" / "dog");
  testing::write_file(folder_ / "others" / "dog" / "1.png", encode_png(torch::ones({3, 8, 8}, torch::kByte)));
  const std::string others = "validation_data: {input_path: '" + (folder_ / "others").string() + "'}}";
  const std::string photos = "task: {train_data: {input_path: '" + (folder_ / "photos").string() + "'}, ";
  EXPECT_EQ(validated(photos + others), (Labels{1}));
  expect_error<InvalidArgument>([&] { data("task: {train_data: {input_path: ''}, " + others, /*training=*/false); },
                                "others has 1 classes and the model has 3: which are they?");
  std::filesystem::create_directories(folder_ / "others" / "fox");
  testing::write_file(folder_ / "others" / "fox" / "1.png", encode_png(torch::ones({3, 8, 8}, torch::kByte)));
  expect_error<InvalidArgument>([&] { data(photos + others); }, "fox: class_names does not have this class");
}

TEST_F(ImageDataTest, AnEvaluationNeedsNoDataToTrainWith) {
  const std::string none = "task: {train_data: {input_path: ''}}";
  EXPECT_EQ(data(none, /*training=*/false).validation->iterator().next()->size(), 6);
  expect_error<InvalidArgument>([&] { data(none); }, "task.train_data.input_path) is empty");
}

TEST_F(ImageDataTest, TurnsAreForRecordsOnly) {
  std::filesystem::create_directories(folder_ / "photos/a");
  expect_error<InvalidArgument>(
      [&] { data("task: {train_data: {input_path: '" + (folder_ / "photos").string() + "', cycle_length: 4}}"); },
      "cycle_length is 4 and block_length 1, which are for files of records");
}

}  // namespace
}  // namespace cohort::image_data_test
