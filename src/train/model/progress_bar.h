// The progress of an epoch or an evaluation, as Keras shows it.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>

#include "cohort/callbacks.h"
#include "cohort/model.h"

namespace cohort {

struct ProgressOptions {
  Verbose style = Verbose::kLines;       // not kAuto
  std::ostream* output = nullptr;        // null: standard output
  int width = 0;                         // columns that a redrawn line may take; 0: any
  std::function<double()> seconds = {};  // a clock; unset: the steady one
};

// kAuto resolved: a terminal gets the bar.
ProgressOptions progress_options(Verbose verbose, std::ostream* output, const Strategy& strategy);

class ProgressBar {
 public:
  explicit ProgressBar(ProgressOptions options);
  // An unfinished line is ended, so that an error message does not stand behind it.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // "Epoch 1/5", and how many steps there will be (-1: not known).
  void begin(std::string title, int64_t steps);
  // After each step. `logs` is only called when something is drawn, a few times a second.
  void update(int64_t examples, const std::function<Logs()>& logs);
  void finish(const Logs& logs);

 private:
  bool due() const;
  void draw(const Logs& logs, bool last);
  std::string bar_line(const Logs& logs, bool last) const;
  std::string plain_line(const Logs& logs) const;
  std::string rate_text() const;

  ProgressOptions options_;
  std::string title_;
  int64_t steps_ = -1;
  int64_t step_ = 0;
  int64_t examples_ = 0;
  double start_ = 0.0;
  double last_step_ = 0.0;  // when the latest step ended
  double drawn_ = 0.0;
  std::size_t drawn_length_ = 0;  // of the line that stands in place
};

}  // namespace cohort
