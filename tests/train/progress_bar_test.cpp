#include "train/model/progress_bar.h"

#include <gtest/gtest.h>

#include <sstream>

namespace cohort::progress_bar_test {
namespace {

struct Screen {
  explicit Screen(Verbose style, int width = 0)
      : bar({.style = style, .output = &text, .width = width, .seconds = [this] { return now; }}) {}
  void step(double seconds, int64_t examples = 100) {
    now += seconds;
    bar.update(examples, [&] {
      ++reads;
      return Logs{{"loss", 0.5}, {"accuracy", 0.25}};
    });
  }

  double now = 100.0;
  int reads = 0;
  std::ostringstream text;
  ProgressBar bar;
};

TEST(ProgressBarTest, RedrawsInPlaceAFewTimesASecond) {
  Screen screen(Verbose::kBar);
  screen.bar.begin("Epoch 1/2", 200);
  for (int i = 0; i < 100; ++i) screen.step(0.01);
  EXPECT_EQ(screen.reads, 4);  // the first step, then every quarter of a second
  const std::string drawn = screen.text.str();
  EXPECT_EQ(drawn.substr(0, 10), "Epoch 1/2\n");
  EXPECT_EQ(drawn.find('\n', 10), std::string::npos);
  EXPECT_NE(
      drawn.find("\r  1/200 [>.............................] - ETA: 2s 10ms/step - 10000 examples/s - loss: 0.5000 - "
                 "accuracy: 0.2500"),
      std::string::npos)
      << drawn;
  EXPECT_NE(drawn.find("\r 76/200 [===========>..................]"), std::string::npos) << drawn;
  for (int i = 0; i < 100; ++i) screen.step(0.01);
  screen.bar.finish({{"loss", 0.25}, {"val_loss", 1e-5}});
  const std::string all = screen.text.str();
  const std::string last = all.substr(all.rfind('\r'));
  EXPECT_EQ(last.substr(0, last.find_last_not_of(" \n") + 1),
            "\r200/200 [==============================] - 2s 10ms/step - 10000 examples/s - loss: 0.2500 - val_loss: "
            "1.0000e-05");
  EXPECT_EQ(all.back(), '\n');
}

TEST(ProgressBarTest, TimesAndUnknownLengths) {
  Screen screen(Verbose::kBar);
  screen.bar.begin("", -1);
  screen.step(90);
  EXPECT_NE(screen.text.str().find("\r1/Unknown - 1:30 90s/step - 1 examples/s"), std::string::npos)
      << screen.text.str();
  screen.bar.finish({});
  EXPECT_NE(screen.text.str().find("\r1/1 [==============================] - 1:30"), std::string::npos);
  screen.bar.begin("", 2000);
  screen.step(2.0);
  EXPECT_NE(screen.text.str().find("ETA: 1:06:38 2s/step"), std::string::npos) << screen.text.str();
  screen.bar.begin("", 20);
  screen.step(0.0002);
  EXPECT_NE(screen.text.str().find("ETA: 0s 200us/step"), std::string::npos) << screen.text.str();
}

TEST(ProgressBarTest, FitsTheTerminal) {
  Screen screen(Verbose::kBar, 40);
  screen.bar.begin("", 10);
  screen.step(1.0);
  EXPECT_EQ(screen.text.str().size(), 40U);  // '\r' and 39 columns
}

TEST(ProgressBarTest, PlainLinesAreFew) {
  Screen screen(Verbose::kLines);
  screen.bar.begin("Epoch 3/5", 25);
  for (int i = 0; i < 25; ++i) screen.step(1.0);
  screen.bar.finish({{"loss", 0.125}});
  EXPECT_EQ(screen.reads, 2);
  EXPECT_EQ(screen.text.str(),
            "Epoch 3/5 - 10/25 - 10s - 1s/step - 100 examples/s - loss: 0.5000 - accuracy: 0.2500\n"
            "Epoch 3/5 - 20/25 - 20s - 1s/step - 100 examples/s - loss: 0.5000 - accuracy: 0.2500\n"
            "Epoch 3/5 - 25/25 - 25s - 1s/step - 100 examples/s - loss: 0.1250\n");
}

TEST(ProgressBarTest, SilentSaysNothing) {
  Screen screen(Verbose::kSilent);
  screen.bar.begin("Epoch 1/1", 2);
  screen.step(20.0);
  screen.bar.finish({{"loss", 1.0}});
  EXPECT_TRUE(screen.text.str().empty());
  EXPECT_EQ(screen.reads, 0);
}

TEST(ProgressBarTest, AnErrorStartsOnALineOfItsOwn) {
  std::ostringstream text;
  {
    ProgressBar bar({.style = Verbose::kBar, .output = &text});
    bar.begin("", 3);
    bar.update(1, [] { return Logs{}; });
  }
  EXPECT_EQ(text.str().back(), '\n');
}

}  // namespace
}  // namespace cohort::progress_bar_test
