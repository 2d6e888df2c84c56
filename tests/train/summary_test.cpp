#include "cohort/train/summary.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "cohort/data/image.h"
#include "cohort/data/tfrecord.h"
#include "cohort/error.h"
#include "event.pb.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::summary_test {
namespace {

using cohort::testing::expect_error;
using cohort::testing::TemporaryFolder;

std::vector<events::Event> events_of(const std::filesystem::path& folder) {
  std::vector<events::Event> all;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_TRUE(entry.path().filename().string().starts_with("events.out.tfevents."));
    TFRecordReader reader(entry.path());
    while (const auto record = reader.next()) {
      events::Event event;
      EXPECT_TRUE(event.ParseFromString(std::string(*record)));
      all.push_back(event);
    }
  }
  return all;
}

TEST(SummaryTest, WritesWhatTensorBoardReads) {
  const TemporaryFolder folder;
  const torch::Tensor picture = torch::arange(3 * 4 * 5).to(torch::kByte).reshape({3, 4, 5});
  {
    SummaryWriter summaries(folder / "train");
    summaries.scalar("loss", 0.25, 7);
    summaries.image("picture", picture, 8);
    summaries.histogram("weights", torch::tensor({0.0, 1.0, 1.0, 4.0, std::nan("")}), 9, 4);
    summaries.text("about", "*hello*", 10);
    summaries.hparams({{"rate", 0.1}, {"name", std::string("x")}, {"on", true}});
  }
  const std::vector<events::Event> events = events_of(folder / "train");
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[1].step(), 7);
  EXPECT_EQ(events[1].summary().value(0).tag(), "loss");
  EXPECT_EQ(events[1].summary().value(0).simple_value(), 0.25F);
  const events::Summary::Image& image = events[2].summary().value(0).image();
  EXPECT_EQ(image.height(), 4);
  EXPECT_EQ(image.width(), 5);
  EXPECT_EQ(image.colorspace(), 3);
  EXPECT_TRUE(torch::equal(decode_png(image.encoded_image_string()), picture));
  const events::HistogramProto& histogram = events[3].summary().value(0).histo();
  EXPECT_EQ(histogram.num(), 4.0);
  EXPECT_EQ(histogram.sum(), 6.0);
  EXPECT_EQ(histogram.sum_squares(), 18.0);
  EXPECT_EQ(std::vector<double>(histogram.bucket().begin(), histogram.bucket().end()),
            (std::vector<double>{1, 2, 0, 1}));
  EXPECT_EQ(histogram.bucket_limit(3), 4.0);
  EXPECT_EQ(events[4].summary().value(0).tensor().string_val(0), "*hello*");
  EXPECT_EQ(events[4].summary().value(0).metadata().plugin_data().plugin_name(), "text");
  events::HParams start;
  ASSERT_TRUE(start.ParseFromString(events[5].summary().value(0).metadata().plugin_data().content()));
  EXPECT_EQ(start.session_start_info().hparams().at("rate").number_value(), 0.1);
  EXPECT_EQ(start.session_start_info().hparams().at("name").string_value(), "x");
  EXPECT_TRUE(start.session_start_info().hparams().at("on").bool_value());
}

TEST(SummaryTest, FloatingPointImagesAndGreyOnes) {
  const TemporaryFolder folder;
  SummaryWriter summaries(folder.path());
  summaries.image("grey", torch::tensor({0.0, 0.5, 1.0, 2.0}).reshape({1, 2, 2}), 0);
  summaries.flush();
  const std::string png = events_of(folder.path())[1].summary().value(0).image().encoded_image_string();
  EXPECT_TRUE(
      torch::equal(decode_png(png, {.channels = 1}).flatten(), torch::tensor({0, 128, 255, 255}).to(torch::kByte)));
  expect_error<InvalidArgument>(
      [&] {
        summaries.image("x", torch::zeros({2, 4, 4}), 0);
      },
      "wanted uint8 of 1 or 3 channels");
}

TEST(SummaryTest, SaysWhereItCannotWrite) {
  expect_error<Unavailable>([] { SummaryWriter("/dev/null/x"); }, "/dev/null/x cannot be made");
}

}  // namespace
}  // namespace cohort::summary_test
