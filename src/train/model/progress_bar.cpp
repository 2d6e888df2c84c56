#include "train/model/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"

namespace cohort {

namespace {

constexpr int kBarWidth = 30;
constexpr int kGoodBarWidth = 16;
constexpr int kLeastBarWidth = 8;
constexpr int kUsualColumns = 80;  // the columns of a terminal that does not say
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

std::string log_text(const Logs::Item& log) {
  const std::string& name = log.first;
  const double value = std::isnan(log.second) ? std::abs(log.second) : log.second;  // a sign says nothing
  const bool plain = std::abs(value) > 1e-3 || value == 0.0 || !std::isfinite(value);
  return name + ": " + format(plain ? "%.4f" : "%.4e", value);
}

std::string logs_text(const Logs& logs) {
  std::string text;
  for (const Logs::Item& log : logs) text += " - " + log_text(log);
  return text;
}

// Returns the number of characters in a text of UTF-8.
int columns_of(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Returns " [===>...]" with so many characters between the brackets.
std::string bar_of(int width, int64_t step, int64_t steps) {
  const auto done = static_cast<std::size_t>(width * step / steps);
  std::string bar(done, '=');
  if (done < static_cast<std::size_t>(width)) bar += '>' + std::string(static_cast<std::size_t>(width) - done - 1, '.');
  return " [" + bar + "]";
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Returns the descriptor behind a stream, or -1 if it is not known.
int file_of(const std::ostream* stream) {
  if (stream == nullptr || stream == &std::cout) return STDOUT_FILENO;
  return stream == &std::cerr || stream == &std::clog ? STDERR_FILENO : -1;
}

}  // namespace

ProgressOptions progress_options(Verbose verbose, std::ostream* output, const Strategy& strategy) {
  ProgressOptions options{.style = verbose, .output = output};
  const int file = file_of(output);
  const char* const kind = std::getenv("TERM");
  const bool terminal = file >= 0 && isatty(file) != 0 && (kind == nullptr || std::string_view(kind) != "dumb");
  if (verbose == Verbose::kAuto) {
    options.style = terminal ? Verbose::kBar : Verbose::kLines;
    if (!strategy.should_save_summary()) options.style = Verbose::kSilent;
  }
  if (terminal) {
    options.columns = [file] {
      winsize size{};
      return ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? static_cast<int>(size.ws_col) : kUsualColumns;
    };
  }
  return options;
}

ProgressBar::ProgressBar(ProgressOptions options) : options_(std::move(options)) {
  if (options_.output == nullptr) options_.output = &std::cout;
  if (!options_.seconds) options_.seconds = steady_seconds;
}

ProgressBar::~ProgressBar() {
  end_line();
}

void ProgressBar::end_line() {
  if (std::exchange(drawn_columns_, 0) > 0) StandingLine::end(*options_.output);
}

void ProgressBar::begin(std::string title, int64_t steps, int64_t done) {
  end_line();
  title_ = std::move(title);
  steps_ = steps;
  step_ = first_ = done;
  examples_ = 0;
  start_ = last_step_ = drawn_ = options_.seconds();
  if (options_.style == Verbose::kBar && !title_.empty()) *options_.output << title_ << std::endl;
}

bool ProgressBar::due() const {
  if (options_.style == Verbose::kBar) return step_ == first_ + 1 || last_step_ - drawn_ >= kRedrawSeconds;
  return last_step_ - drawn_ >= kLineSeconds && step_ != steps_;  // finish() has the last line
}

void ProgressBar::update(int64_t examples, const std::function<Logs()>& logs, bool may_draw) {
  if (options_.style == Verbose::kSilent) return;
  ++step_;
  examples_ += examples;
  last_step_ = options_.seconds();
  if (may_draw && due()) draw(logs(), /*last=*/false);
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
  width_ = options_.columns ? options_.columns() : 0;
  std::string line = last ? last_lines(logs) : bar_line(logs);
  const std::size_t end = std::min(line.find('\n'), line.size());
  const int columns = columns_of(std::string_view(line).substr(0, end));
  // The line that stood there is covered, but for what a terminal that has become narrower moved to another line.
  const int covered = width_ > 0 ? std::min(drawn_columns_, width_ - 1) : drawn_columns_;
  if (columns < covered) line.insert(end, static_cast<std::size_t>(covered - columns), ' ');
  StandingLine::draw(out, "\r" + line);
  drawn_columns_ = columns;
  if (last) end_line();
}

std::string ProgressBar::count() const {
  if (steps_ < 0) return std::to_string(step_) + "/Unknown";
  const std::string total = std::to_string(std::max(steps_, step_));
  std::string made = std::to_string(step_);
  return made.insert(0, total.size() - made.size(), ' ') + "/" + total;
}

std::string ProgressBar::time_text(bool last) const {
  const double spent = last_step_ - start_;
  const int64_t made = step_ - first_;
  if (last || made == 0 || steps_ < 0) return duration(spent);
  return "ETA: " +
         duration(spent / static_cast<double>(made) * static_cast<double>(std::max(steps_ - step_, int64_t{0})));
}

std::string ProgressBar::step_text() const {
  const int64_t made = step_ - first_;
  return per_step(made > 0 ? (last_step_ - start_) / static_cast<double>(made) : 0.0);
}

// Returns "" before any time has gone by.
std::string ProgressBar::rate_text() const {
  const double spent = last_step_ - start_;
  return spent > 0.0 ? format(" - %.0f examples/s", static_cast<double>(examples_) / spent) : "";
}

// Where the terminal is narrow the bar becomes shorter, and what matters least is left out.
std::string ProgressBar::bar_line(const Logs& logs) const {
  const std::string head = count();
  const bool has_bar = steps_ >= 0;
  int room = width_ > 0 ? width_ - 1 - columns_of(head) : std::numeric_limits<int>::max();
  int bar = has_bar ? kLeastBarWidth + 3 : 0;
  bool full = false;
  const auto take = [&](const std::string& text) {
    full = full || columns_of(text) > room - bar;
    if (!full) room -= columns_of(text);
    return full ? "" : text;
  };
  std::vector<std::string> shown;
  for (const Logs::Item& log : logs) shown.push_back(" - " + log_text(log));
  if (!shown.empty()) shown.front() = take(shown.front());
  const std::string time = take(" - " + time_text(/*last=*/false));
  if (has_bar) bar = kGoodBarWidth + 3;
  for (std::size_t i = 1; i < shown.size(); ++i) shown[i] = take(shown[i]);
  const std::string step = take(" " + step_text());
  const std::string rate = take(rate_text());
  std::string line = head;
  if (has_bar)
    line += bar_of(std::clamp(room - 3, kLeastBarWidth, kBarWidth), step_, std::max({steps_, step_, int64_t{1}}));
  line += time + step + rate;
  for (const std::string& text : shown) line += text;
  return line;
}

// Everything, on as many lines as it takes.
std::string ProgressBar::last_lines(const Logs& logs) const {
  const int64_t steps = std::max({steps_, step_, int64_t{1}});
  const std::string head = steps_ < 0 ? std::to_string(steps) + "/" + std::to_string(steps) : count();
  const int most = width_ > 0 ? width_ - 1 : std::numeric_limits<int>::max();
  std::string lines =
      head + bar_of(std::clamp(most - columns_of(head) - 3, 1, kBarWidth), steps_ < 0 ? steps : step_, steps);
  int columns = columns_of(lines);
  std::vector<std::string> parts{time_text(/*last=*/true) + " " + step_text() + rate_text()};
  for (const Logs::Item& log : logs) parts.push_back(log_text(log));
  for (const std::string& part : parts) {
    const bool fits = columns + columns_of(part) + 3 <= most;
    lines += (fits ? " - " : "\n  ") + part;
    columns = columns_of(part) + (fits ? columns + 3 : 2);
  }
  return lines;
}

std::string ProgressBar::plain_line(const Logs& logs) const {
  std::string line = title_.empty() ? "" : title_ + " - ";
  line += std::to_string(step_) + (steps_ < 0 ? "" : "/" + std::to_string(steps_));
  return line + " - " + duration(last_step_ - start_) + " - " + step_text() + rate_text() + logs_text(logs);
}

}  // namespace cohort
