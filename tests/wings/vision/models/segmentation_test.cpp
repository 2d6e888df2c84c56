// The loss, the metrics, the data and the model of segmentation.
#include "cohort/models/semantic_segmentation.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "cohort/data/image.h"
#include "cohort/error.h"
#include "cohort/strategy.h"
#include "cohort/train.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "wings/vision/models/segmentation_loss.h"

namespace cohort::segmentation_test {
namespace {

using cohort::testing::expect_error;
using cohort::testing::TemporaryFolder;
using cohort::testing::write_file;

constexpr int64_t kClasses = 3;

Example pixels(int64_t examples, bool ignores) {
  torch::manual_seed(2);
  Example made{.x = torch::randn({examples, kClasses, 5, 7}, torch::kDouble),
               .y = torch::randint(kClasses, {examples, 5, 7}, torch::kLong)};
  if (ignores) made.y.masked_fill_(torch::rand({examples, 5, 7}).lt(0.3), 255);
  return made;
}

// Returns Model Garden's loss, pixel by pixel.
double by_hand(const SegmentationLossOptions& options, const Example& batch) {
  std::vector<double> each;
  int64_t counted = 0;
  const torch::Tensor scores = batch.x.permute({0, 2, 3, 1}).reshape({-1, kClasses});
  const torch::Tensor labels = batch.y.flatten();
  for (int64_t i = 0; i < labels.numel(); ++i) {
    const auto label = labels[i].item<int64_t>();
    const bool counts = !options.ignore_label || label != *options.ignore_label;
    counted += counts ? 1 : 0;
    double sum = 0.0;
    double largest = 0.0;
    for (int64_t c = 0; c < kClasses; ++c) largest += std::exp(scores[i][c].item<double>());
    for (int64_t c = 0; c < kClasses; ++c) {
      const double score = scores[i][c].item<double>();
      const double target = (c == label ? 1.0 - options.label_smoothing : 0.0) + options.label_smoothing / kClasses;
      const double weight = options.class_weights.empty()
                                ? 1.0
                                : options.class_weights[static_cast<std::size_t>(options.binary ? c : label % 255)];
      const double p = options.binary ? 1.0 / (1.0 + std::exp(-score)) : std::exp(score) / largest;
      const double entropy = -target * std::log(p) - (options.binary ? (1.0 - target) * std::log(1.0 - p) : 0.0);
      sum += weight * entropy / (options.binary ? kClasses : 1);
    }
    each.push_back(counts ? options.weight * sum : 0.0);
  }
  std::sort(each.rbegin(), each.rend());
  const auto k = static_cast<int64_t>(options.top_k * static_cast<double>(each.size()));
  double total = 0.0;
  for (int64_t i = 0; i < k; ++i) total += each[static_cast<std::size_t>(i)];
  return total / static_cast<double>(std::min(k, counted));
}

std::vector<SegmentationLossOptions> kinds() {
  std::vector<SegmentationLossOptions> list;
  for (const bool binary : {false, true}) {
    for (const double top_k : {1.0, 0.25}) {
      for (const bool ignores : {false, true}) {
        list.push_back({.num_classes = kClasses,
                        .weight = 2.0,
                        .label_smoothing = 0.1,
                        .class_weights = {1.0, 0.5, 3.0},
                        .binary = binary,
                        .top_k = top_k,
                        .ignore_label = ignores ? std::optional<int64_t>(255) : std::nullopt});
      }
    }
  }
  list.push_back({.num_classes = kClasses});
  return list;
}

TEST(SegmentationLoss, IsModelGardens) {
  for (const SegmentationLossOptions& options : kinds()) {
    const Example batch = pixels(4, options.ignore_label.has_value());
    EXPECT_NEAR(segmentation_loss(options)(batch.y, batch.x).item<double>(), by_hand(options, batch), 1e-10)
        << options.binary << " " << options.top_k << " " << options.ignore_label.value_or(-1);
  }
}

// Uneven shares, one of which is empty, have the loss and the gradients of the whole batch.
TEST(SegmentationLoss, OfSharesIsThatOfTheWholeBatch) {
  const MirroredStrategy strategy({.devices = cpu_devices(3)});
  for (const SegmentationLossOptions& options : kinds()) {
    const Loss loss = segmentation_loss(options);
    Example batch = pixels(5, options.ignore_label.has_value());
    torch::Tensor whole = batch.x.clone().requires_grad_();
    loss(batch.y, whole).backward();
    const std::vector<int64_t> ends = {0, 4, 5, 5};
    std::vector<torch::Tensor> gradients(3);
    const PerReplica<double> values = strategy.run([&](Replica& replica) {
      const auto r = static_cast<std::size_t>(replica.id());
      const Example share = batch.rows(ends[r], ends[r + 1]);
      const torch::Tensor x = share.x.clone().requires_grad_();
      const LossShare own = loss.share(replica, share.y, x);
      own.value.backward();
      gradients[r] = x.grad().defined() ? x.grad() : torch::zeros_like(x);
      return own.value.item<double>();
    });
    double sum = 0.0;
    for (const double value : values.values()) sum += value;
    EXPECT_NEAR(sum, by_hand(options, batch), 1e-10);
    EXPECT_LT((torch::cat(gradients) - whole.grad()).abs().max().item<double>(), 1e-12)
        << options.binary << " " << options.top_k << " " << options.ignore_label.value_or(-1);
  }
}

TEST(SegmentationLoss, WantsAWeightForEachClass) {
  expect_error<InvalidArgument>(
      [] {
        segmentation_loss({.num_classes = 3, .class_weights = {1.0, 2.0}});
      },
      "task.losses.class_weights has 2 numbers, wanted one for each of the 3 classes");
}

TEST(PixelAccuracy, LeavesOutWhatIsIgnored) {
  const torch::Tensor y = torch::tensor({0, 1, 255, 1}, torch::kLong).view({1, 2, 2});
  const torch::Tensor right = torch::tensor({1.0, 0.0, 1.0, 1.0}).view({1, 1, 2, 2});  // of class 0: wrong at the last
  const torch::Tensor prediction = torch::cat({right, 0.5 * torch::ones_like(right)}, 1);
  const auto measure = [&](std::optional<int64_t> ignored) {
    const Metric metric = pixel_accuracy(ignored);
    MetricState state = metric.make_state();
    metric.update(state, y, prediction);
    return metric.result(state);
  };
  EXPECT_DOUBLE_EQ(measure(255), 2.0 / 3.0);
  EXPECT_DOUBLE_EQ(measure(std::nullopt), 0.5);
}

class SegmentationTask : public ::testing::Test {
 protected:
  SegmentationTask() {
    for (const char* name : {"images", "masks"}) std::filesystem::create_directories(folder_ / name);
    for (int i = 0; i < 4; ++i) {
      // The left half is of class 0 and dark, the right one of class 2 and bright.
      torch::Tensor mask = torch::zeros({1, 12, 10}, torch::kByte);
      mask.slice(2, 5).fill_(2);
      const std::string name = std::to_string(i) + ".png";
      write_file(folder_ / "masks" / name, encode_png(mask));
      write_file(folder_ / "images" / name, encode_png(mask.mul(100).expand({3, 12, 10}).contiguous()));
    }
    task_.model.num_classes = 3;
    task_.model.input_size = {7, 6, 3};
    task_.model.input_mean = {0.0, 0.0, 0.0};
    task_.model.input_stddev = {1.0, 1.0, 1.0};
    task_.train_data.input_path = folder_.path().string();
    task_.train_data.global_batch_size = 2;
    task_.train_data.held_out = 0.25;
    task_.validation_data.global_batch_size = 2;
  }

  TemporaryFolder folder_;
  SemanticSegmentationTask task_;
};

TEST_F(SegmentationTask, MasksGoWhereTheirPicturesGo) {
  const TaskData data = task_.build_inputs({}, /*training=*/true);
  EXPECT_EQ(data.steps_per_epoch, 1);  // of three pictures in batches of two
  Iterator iterator = data.train->iterator();
  bool seen[2] = {false, false};  // as it is, flipped
  for (int i = 0; i < 8; ++i) {
    const Example batch = *iterator.next();
    EXPECT_EQ(batch.x.sizes(), (std::vector<int64_t>{2, 3, 7, 6}));
    EXPECT_EQ(batch.y.sizes(), (std::vector<int64_t>{2, 7, 6}));
    for (int64_t k = 0; k < 2; ++k) {
      const torch::Tensor bright = batch.x[k][0].gt(0.5).to(torch::kLong) * 2;
      EXPECT_TRUE(torch::equal(bright, batch.y[k]));
      seen[batch.y[k][0][0].item<int64_t>() == 0 ? 0 : 1] = true;
    }
  }
  EXPECT_TRUE(seen[0] && seen[1]);
  const Example held_out = *data.validation->iterator().next();
  EXPECT_EQ(held_out.x.sizes(), (std::vector<int64_t>{1, 3, 7, 6}));
  EXPECT_EQ(held_out.y[0][0][0].item<int64_t>(), 0);
}

TEST_F(SegmentationTask, RefusesWhatDoesNotFit) {
  const auto read = [&] { task_.build_inputs({}, /*training=*/true).train->iterator().next(); };
  task_.model.num_classes = 2;
  expect_error<InvalidArgument>(read, "a mask has the value 2, wanted 0 to 1 (task.model.num_classes) or 255");
  task_.losses.ignore_label = 2;
  read();
  task_.model.input_size = {7, 6};
  expect_error<InvalidArgument>(read, "task.model.input_size is [7, 6], wanted height, width and 1 or 3 channels");
  task_.model.input_size = {7, 6, 3};
  task_.train_data.global_batch_size = 4;
  expect_error<InvalidArgument>(read, "has 3 pictures to train with, fewer than a batch, 4");
  task_.train_data.input_path = "";
  expect_error<InvalidArgument>(read, "there is no data");
  task_.builtin_data = "shapes";
  expect_error<InvalidArgument>(read, "drawn shapes have 4 classes, but task.model.num_classes is 2");
  task_.train_data.input_path = "/none";
  expect_error<NotFound>(read, "/none is not a folder, wanted one with the folders images and masks");
}

// Odd sizes, ignored pixels, two replicas: what is learned is seen in the metrics.
TEST_F(SegmentationTask, AUNetLearns) {
  task_.model.input_size = {13, 11, 3};
  task_.model.backbone.unet.filters = 4;
  task_.model.backbone.unet.levels = 2;
  task_.report_per_class_iou = true;
  torch::manual_seed(1);
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  const TaskData data = task_.build_inputs({}, /*training=*/true);
  Model model = task_.build_model();
  model.compile(
      {.optimizer = Adam({.learning_rate = 0.02}), .loss = task_.build_loss(), .metrics = task_.build_metrics()});
  model.fit(*data.train, {.epochs = 1, .steps_per_epoch = 60, .verbose = Verbose::kSilent});
  Logs logs = model.evaluate(*data.validation, {.verbose = Verbose::kSilent});
  EXPECT_GT(logs["accuracy"], 0.9);
  EXPECT_GT(logs["mean_iou"], 0.8);
  EXPECT_GT(logs["iou_2"], 0.8);
  EXPECT_EQ(model.predict(*data.validation).sizes(), (std::vector<int64_t>{1, 3, 13, 11}));
}

}  // namespace
}  // namespace cohort::segmentation_test
