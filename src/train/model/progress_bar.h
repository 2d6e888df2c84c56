// The progress of an epoch or an evaluation, as Keras shows it.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>

#include "cohort/train/callbacks.h"
#include "cohort/train/model.h"

namespace cohort {

struct ProgressOptions {
  Verbose style = Verbose::kLines;       // not kAuto
  std::ostream* output = nullptr;        // null: standard output
  std::function<int()> columns = {};     // the terminal's width at this moment; unset: a line may have any length
  std::function<double()> seconds = {};  // a clock; unset: the steady one
};

// Resolves kAuto: a terminal gets the bar, anything else plain lines, and a worker that is not the chief nothing.
ProgressOptions progress_options(Verbose verbose, std::ostream* output, const Strategy& strategy);

class ProgressBar {
 public:
  explicit ProgressBar(ProgressOptions options);
  // Ends an unfinished line, so that an error message does not stand behind it.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Begins with a title such as "Epoch 1/5", the number of steps (-1: not known) and how many of them are done already.
  void begin(std::string title, int64_t steps, int64_t done = 0);
  // To be called after each step. `logs` is only called when something is drawn, a few times a second. Without may_draw
  // nothing is: the values would have to be waited for.
  void update(int64_t examples, const std::function<Logs()>& logs, bool may_draw = true);
  void finish(const Logs& logs);

 private:
  bool due() const;
  void end_line();
  void draw(const Logs& logs, bool last);
  std::string count() const;
  std::string time_text(bool last) const;
  std::string step_text() const;
  std::string rate_text() const;
  std::string bar_line(const Logs& logs) const;
  std::string last_lines(const Logs& logs) const;
  std::string plain_line(const Logs& logs) const;

  ProgressOptions options_;
  std::string title_;
  int64_t steps_ = -1;
  int64_t step_ = 0;
  int64_t first_ = 0;  // steps done before
  int64_t examples_ = 0;
  double start_ = 0.0;
  double last_step_ = 0.0;  // the time at which the latest step ended
  double drawn_ = 0.0;
  int width_ = 0;          // the columns of the terminal at the last drawing; 0: any
  int drawn_columns_ = 0;  // the columns of the line that stands in place
};

}  // namespace cohort
