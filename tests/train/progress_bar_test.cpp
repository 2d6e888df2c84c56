#include "train/model/progress_bar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>

namespace cohort::progress_bar_test {
namespace {

struct Screen {
  // Makes a terminal of so many columns; 0: of any width.
  explicit Screen(Verbose style, int columns = 0)
      : width(columns),
        bar({.style = style, .output = &text, .columns = [this] { return width; }, .seconds = [this] { return now; }}) {
  }
  void step(double seconds, int64_t examples = 100) {
    now += seconds;
    bar.update(examples, [&] {
      ++reads;
      return Logs{{"loss", 0.5}, {"accuracy", 0.25}};
    });
  }

  // Returns what was written since the last "\r", or since the last call.
  std::string drawn() {
    const std::string all = text.str();
    text.str("");
    return all.substr(std::min(all.rfind('\r') + 1, all.size()));
  }

  int width = 0;
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

TEST(ProgressBarTest, LeavesOutWhatDoesNotFitTheTerminal) {
  Screen screen(Verbose::kBar, 40);
  screen.bar.begin("", 1875);
  for (int i = 0; i < 1000; ++i) screen.step(0.01);
  EXPECT_EQ(screen.drawn(), " 976/1875 [======>.....] - loss: 0.5000");
  screen.width = 80;
  screen.step(1.0);
  EXPECT_EQ(screen.drawn(), "1001/1875 [===========>..........] - ETA: 10s - loss: 0.5000 - accuracy: 0.2500");
  screen.width = 200;
  screen.step(1.0);
  EXPECT_EQ(
      screen.drawn(),
      "1002/1875 [================>.............] - ETA: 10s 12ms/step - 8350 examples/s - loss: 0.5000 - accuracy: "
      "0.2500");
}

TEST(ProgressBarTest, NoLineThatIsDrawnAgainIsAsWideAsTheTerminal) {
  for (const int64_t steps : {-1, 9, 123456}) {
    for (int width = 40; width <= 200; ++width) {
      Screen screen(Verbose::kBar, width);
      screen.bar.begin("", steps);
      for (int i = 0; i < 3; ++i) {
        screen.step(10.0);
        const std::string line = screen.drawn();
        EXPECT_LT(line.size(), static_cast<std::size_t>(width)) << line;
        EXPECT_EQ(line.find('[') != std::string::npos, steps > 0) << line;
      }
    }
  }
}

TEST(ProgressBarTest, CountsTheCharactersOfANameNotItsBytes) {
  const auto line = [](const std::string& name) {
    std::ostringstream text;
    ProgressBar bar({.style = Verbose::kBar, .output = &text, .columns = [] { return 60; }});
    bar.begin("", 10);
    bar.update(1, [&] { return Logs{{name, 0.5}}; });
    return text.str().substr(0, text.str().find(']'));
  };
  EXPECT_EQ(line("\u00e4\u00f6\u00fc\u00df"), line("abcd"));
}

TEST(ProgressBarTest, TheEndHasEverythingOnAsManyLinesAsItTakes) {
  Screen screen(Verbose::kBar, 40);
  screen.bar.begin("Epoch 1/1", 20);
  for (int i = 0; i < 20; ++i) screen.step(0.1);
  (void)screen.drawn();
  screen.bar.finish({{"loss", 0.25}, {"accuracy", 0.5}, {"val_loss", 0.125}});
  EXPECT_EQ(screen.drawn(),
            "20/20 [==============================] \n"
            "  2s 100ms/step - 1000 examples/s\n"
            "  loss: 0.2500 - accuracy: 0.5000\n"
            "  val_loss: 0.1250\n");
}

TEST(ProgressBarTest, CoversWhatStoodThereButNotBeyondATerminalThatBecameNarrower) {
  Screen screen(Verbose::kBar, 100);
  screen.bar.begin("", 20);
  screen.step(1.0);
  EXPECT_GT(screen.drawn().size(), 60U);
  screen.width = 50;
  screen.step(1.0);
  EXPECT_EQ(screen.drawn().size(), 49U);
}

TEST(ProgressBarTest, AStretchThatIsLeftShowsHowFarItCame) {
  Screen screen(Verbose::kBar);
  screen.bar.begin("Epoch 1/2", 10);
  for (int i = 0; i < 5; ++i) screen.step(1.0);
  screen.bar.finish({{"loss", 0.5}});
  EXPECT_NE(screen.text.str().find("\r 5/10 [===============>..............] - 5s 1s/step"), std::string::npos)
      << screen.text.str();
}

TEST(ProgressBarTest, StepsThatWereDoneBeforeTakeNoTime) {
  Screen screen(Verbose::kBar);
  screen.bar.begin("Epoch 1/2", 100, /*done=*/50);
  screen.step(2.0);
  EXPECT_NE(screen.text.str().find("\r 51/100 [===============>..............] - ETA: 1:38 2s/step - 50 examples/s"),
            std::string::npos)
      << screen.text.str();
}

TEST(ProgressBarTest, TheNextBeginsOnALineOfItsOwn) {
  Screen screen(Verbose::kBar);
  screen.bar.begin("Epoch 1/2", 10);
  screen.step(1.0);
  screen.bar.begin("Evaluation", 10);
  EXPECT_NE(screen.text.str().find("0.2500\nEvaluation\n"), std::string::npos) << screen.text.str();
}

TEST(ProgressBarTest, NotANumberHasNoSign) {
  Screen screen(Verbose::kLines);
  screen.bar.begin("", 1);
  screen.step(1.0);
  screen.bar.finish({{"loss", -std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_NE(screen.text.str().find("loss: nan\n"), std::string::npos) << screen.text.str();
}

TEST(ProgressBarTest, PlainLinesAreFew) {
  Screen screen(Verbose::kLines);
  screen.bar.begin("Epoch 3/5", 30);
  for (int i = 0; i < 30; ++i) screen.step(1.0);
  screen.bar.finish({{"loss", 0.125}});
  EXPECT_EQ(screen.reads, 2);
  EXPECT_EQ(screen.text.str(),
            "Epoch 3/5 - 10/30 - 10s - 1s/step - 100 examples/s - loss: 0.5000 - accuracy: 0.2500\n"
            "Epoch 3/5 - 20/30 - 20s - 1s/step - 100 examples/s - loss: 0.5000 - accuracy: 0.2500\n"
            "Epoch 3/5 - 30/30 - 30s - 1s/step - 100 examples/s - loss: 0.1250\n");
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
