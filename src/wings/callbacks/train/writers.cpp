// Callbacks that write files: CSVLogger and MetricsWriter.
#include <fstream>
#include <iomanip>
#include <sstream>

#include "base/fail.h"
#include "cohort/train/model.h"
#include "cohort/train/more_callbacks.h"
#include "strategy/memory_use.h"
#include "train/callbacks/log_file.h"

namespace cohort {

namespace {

class CsvLog final : public Callback {
 public:
  explicit CsvLog(CSVLoggerOptions options) : options_(std::move(options)) {
    if (options_.file.empty()) fail<InvalidArgument>("[callbacks] CSVLogger: file is empty, wanted a path");
  }

  void on_train_begin(const RunInfo& run) override {
    writes_ = run.model.strategy().should_save_summary();
    if (!writes_) return;
    names_.clear();
    read_header();
    stream_ = open_log(options_.file, options_.append ? std::ios::app : std::ios::trunc, "CSVLogger");
  }

  void on_epoch_end(const RunInfo& run, Logs& logs) override {
    if (!writes_) return;
    std::ostringstream line;
    line << std::setprecision(9);
    if (names_.empty()) {
      line << "epoch";
      for (const auto& item : logs) {
        names_.push_back(item.first);
        line << options_.separator << item.first;
      }
      line << '\n';
    }
    line << run.epoch;
    for (const std::string& name : names_) {
      line << options_.separator;
      const auto value = logs.find(name);
      value ? line << *value : line << "NA";
    }
    line << '\n';
    write_log(stream_, line.str(), options_.file, "CSVLogger");
  }

  void on_train_end(const RunInfo& /*run*/, const Logs& /*logs*/) override { stream_.close(); }

 private:
  // Reads the columns of a file that is continued.
  void read_header() {
    if (std::error_code none; !options_.append || !std::filesystem::is_regular_file(options_.file, none)) return;
    std::ifstream before(options_.file);
    std::string line;
    if (!std::getline(before, line)) return;
    std::istringstream columns(line);
    std::string name;
    for (int i = 0; std::getline(columns, name, options_.separator); ++i) {
      if (i > 0) names_.push_back(name);
    }
  }

  CSVLoggerOptions options_;
  bool writes_ = true;
  std::vector<std::string> names_;
  std::ofstream stream_;
};

class MetricsFile final : public Callback {
 public:
  explicit MetricsFile(std::filesystem::path file) : file_(std::move(file)) {}

  void on_train_begin(const RunInfo& /*run*/) override { training_ = true; }
  void on_train_end(const RunInfo& /*run*/, const Logs& /*logs*/) override { training_ = false; }

  // A validation happens before its epoch ends, but its line stands after that of the epoch.
  void on_test_end(const RunInfo& run, const Logs& logs) override {
    const int64_t epochs = training_ ? run.epoch + 1 : run.epochs;
    evaluation_ = {run.step, epochs, "eval", logs, run.examples_per_second};
    evaluated_ = true;
    if (!training_) write_evaluation(run);
  }

  void on_epoch_end(const RunInfo& run, Logs& logs) override {
    Logs own;
    for (const auto& [name, value] : logs) {
      if (name.rfind("val_", 0) != 0) own.set(name, value);
    }
    append(run, {run.step, run.epoch + (run.ends_epoch() ? 1 : 0), "train", own, run.examples_per_second});
    write_evaluation(run);
  }

 private:
  void append(const RunInfo& run, MetricsRecord record) const {
    const Strategy& strategy = run.model.strategy();
    if (!strategy.should_save_summary()) return;
    for (const auto& [name, value] : memory_logs(strategy.worker_devices())) record.metrics.set(name, value);
    append_metrics(file_, record);
  }
  void write_evaluation(const RunInfo& run) {
    if (std::exchange(evaluated_, false)) append(run, evaluation_);
  }

  std::filesystem::path file_;
  bool training_ = false;
  bool evaluated_ = false;
  MetricsRecord evaluation_;
};

}  // namespace

CallbackPtr CSVLogger(const CSVLoggerOptions& options) {
  return std::make_shared<CsvLog>(options);
}

CallbackPtr MetricsWriter(std::filesystem::path file) {
  return std::make_shared<MetricsFile>(std::move(file));
}

}  // namespace cohort
