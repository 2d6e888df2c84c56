#include "train/model/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <utility>

namespace cohort {

namespace {

constexpr int kBarWidth = 30;
constexpr double kRedrawSeconds = 0.25;
constexpr double kLineSeconds = 10.0;

template <typename... Args>
std::string format(const char* pattern, Args... args) {
  char text[96];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

std::string duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole >= 3600) return format("%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
  if (whole >= 60) return format("%ld:%02ld", whole / 60, whole % 60);
  return format("%lds", whole);
}

std::string per_step(double seconds) {
  if (seconds >= 1.0 || seconds <= 0.0) return format("%.0fs/step", seconds);
  if (seconds >= 1e-3) return format("%.0fms/step", seconds * 1e3);
  return format("%.0fus/step", seconds * 1e6);
}

std::string logs_text(const Logs& logs) {
  std::string text;
  for (const auto& [name, value] : logs) {
    const bool plain = std::abs(value) > 1e-3 || value == 0.0 || !std::isfinite(value);
    text += " - " + name + ": " + format(plain ? "%.4f" : "%.4e", value);
  }
  return text;
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

ProgressOptions progress_options(Verbose verbose, std::ostream* output, const Strategy& strategy) {
  ProgressOptions options{.style = verbose, .output = output};
  const bool terminal = output == nullptr && isatty(STDOUT_FILENO) != 0;
  if (verbose == Verbose::kAuto) {
    options.style = terminal ? Verbose::kBar : Verbose::kLines;
    if (!strategy.should_save_summary()) options.style = Verbose::kSilent;
  }
  winsize size{};
  if (terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) options.width = size.ws_col;
  return options;
}

ProgressBar::ProgressBar(ProgressOptions options) : options_(std::move(options)) {
  if (options_.output == nullptr) options_.output = &std::cout;
  if (!options_.seconds) options_.seconds = steady_seconds;
}

ProgressBar::~ProgressBar() {
  if (drawn_length_ > 0) *options_.output << std::endl;
}

void ProgressBar::begin(std::string title, int64_t steps) {
  title_ = std::move(title);
  steps_ = steps;
  step_ = examples_ = 0;
  start_ = last_step_ = drawn_ = options_.seconds();
  if (options_.style == Verbose::kBar && !title_.empty()) *options_.output << title_ << std::endl;
}

bool ProgressBar::due() const {
  if (options_.style == Verbose::kBar) return step_ == 1 || last_step_ - drawn_ >= kRedrawSeconds;
  return last_step_ - drawn_ >= kLineSeconds;
}

void ProgressBar::update(int64_t examples, const std::function<Logs()>& logs) {
  if (options_.style == Verbose::kSilent) return;
  ++step_;
  examples_ += examples;
  last_step_ = options_.seconds();
  if (due()) draw(logs(), /*last=*/false);
}

void ProgressBar::finish(const Logs& logs) {
  if (options_.style == Verbose::kSilent) return;
  draw(logs, /*last=*/true);
}

void ProgressBar::draw(const Logs& logs, bool last) {
  drawn_ = options_.seconds();
  std::ostream& out = *options_.output;
  if (options_.style == Verbose::kLines) {
    out << plain_line(logs) << std::endl;
    return;
  }
  std::string line = bar_line(logs, last);
  if (!last && options_.width > 1) line.resize(std::min(line.size(), static_cast<std::size_t>(options_.width - 1)));
  const std::size_t length = line.size();
  if (length < drawn_length_) line.append(drawn_length_ - length, ' ');
  out << '\r' << line;
  if (last) out << '\n';
  out << std::flush;
  drawn_length_ = last ? 0 : length;
}

std::string ProgressBar::rate_text() const {
  const double spent = last_step_ - start_;
  std::string text = per_step(step_ > 0 ? spent / static_cast<double>(step_) : 0.0);
  if (spent > 0.0) text += format(" - %.0f examples/s", static_cast<double>(examples_) / spent);
  return text;
}

std::string ProgressBar::bar_line(const Logs& logs, bool last) const {
  const double spent = last_step_ - start_;
  if (steps_ < 0 && !last) {
    return std::to_string(step_) + "/Unknown - " + duration(spent) + " " + rate_text() + logs_text(logs);
  }
  const int64_t steps = last ? std::max(step_, int64_t{1}) : std::max(steps_, step_);
  const std::string total = std::to_string(steps);
  std::string count = std::to_string(step_);
  count.insert(0, total.size() - count.size(), ' ');
  const auto done = static_cast<std::size_t>(kBarWidth * step_ / steps);
  std::string bar(done, '=');
  if (done < kBarWidth) bar += '>' + std::string(kBarWidth - done - 1, '.');
  std::string time = duration(spent);
  if (!last && step_ > 0) {
    time = "ETA: " + duration(spent / static_cast<double>(step_) * static_cast<double>(steps - step_));
  }
  return count + "/" + total + " [" + bar + "] - " + time + " " + rate_text() + logs_text(logs);
}

std::string ProgressBar::plain_line(const Logs& logs) const {
  std::string line = title_.empty() ? "" : title_ + " - ";
  line += std::to_string(step_) + (steps_ < 0 ? "" : "/" + std::to_string(steps_));
  return line + " - " + duration(last_step_ - start_) + " - " + rate_text() + logs_text(logs);
}

}  // namespace cohort
