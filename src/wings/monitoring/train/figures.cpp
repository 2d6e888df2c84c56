#include "wings/monitoring/train/figures.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/access.h"
#include "base/fail.h"
#include "base/number_in.h"
#include "cohort/cluster/cluster_resolver.h"
#include "strategy/core.h"
#include "strategy/memory_use.h"
#include "wings/monitoring/train/span_totals.h"

namespace cohort {

namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::map<std::string, std::string>;

// Labels that figures have by themselves.
constexpr std::array<std::string_view, 7> kOwnLabels = {"phase",    "name",     "category", "kind",
                                                        "strategy", "replicas", "rank"};

class Families {
 public:
  explicit Families(const Labels& labels) : labels_(labels) {}

  void begin(const char* name, MetricType type, const char* help) {
    list_.push_back({.name = name, .help = help, .type = type, .metric = {}});
  }
  void add(double value, const Labels& labels = {}) {
    prometheus::ClientMetric& metric = list_.back().metric.emplace_back();
    for (const auto& each : {labels_, labels}) {
      for (const auto& [name, text] : each) metric.label.push_back({name, text});
    }
    metric.gauge.value = value;
    metric.counter.value = value;
  }
  void one(const char* name, MetricType type, const char* help, double value) {
    begin(name, type, help);
    add(value);
  }
  // Leaves out those without a number.
  std::vector<MetricFamily> take() {
    std::erase_if(list_, [](const MetricFamily& each) { return each.metric.empty(); });
    return std::move(list_);
  }

 private:
  Labels labels_;
  std::vector<MetricFamily> list_;
};

bool is_label(std::string_view name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", kDigits = "0123456789";
  if (name.empty() || kLetters.find(name.front()) == std::string_view::npos || name.starts_with("__")) return false;
  return std::all_of(name.begin(), name.end(), [&](char c) {
    return kLetters.find(c) != std::string_view::npos || kDigits.find(c) != std::string_view::npos;
  });
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

void add_process(Families& families) {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  families.one("process_cpu_seconds_total", MetricType::Counter, "Seconds that CPUs have worked for the process.",
               seconds_of(use.ru_utime) + seconds_of(use.ru_stime));
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  if (statm >> size >> resident) {
    families.one("process_resident_memory_bytes", MetricType::Gauge, "Memory of the process that is resident.",
                 static_cast<double>(resident * sysconf(_SC_PAGESIZE)));
  }
  std::error_code none;
  const std::filesystem::directory_iterator open("/proc/self/fd", none);
  families.one("process_open_fds", MetricType::Gauge, "Open file descriptors.",
               static_cast<double>(std::distance(begin(open), end(open))));
}

// The launcher says how often it has started the process again.
void add_restarts(Families& families) {
  const Environment variables = process_environment();
  for (const char* name : {"COHORT_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"}) {
    const std::optional<int> count = parse_int(variables(name).value_or(""));
    if (!count) continue;
    families.one("cohort_restarts_total", MetricType::Counter, "Starts of the worker after the first one.", *count);
    return;
  }
}

void add_spans(Families& families) {
  const SpanTotals& totals = SpanTotals::of_process();
  families.begin("cohort_span_seconds_total", MetricType::Counter,
                 "Seconds that all threads have spent in spans of a category.");
  for (const auto& [category, seconds] : totals.seconds()) families.add(seconds, {{"category", category}});
  families.begin("cohort_checkpoint_timestamp_seconds", MetricType::Gauge,
                 "When the process last wrote a checkpoint, in seconds since 1970.");
  if (const auto last = totals.last_checkpoint()) families.add(*last);
}

}  // namespace

Figures::Figures(const Labels& labels) : labels_(labels) {
  for (const auto& [name, text] : labels_) {
    if (!is_label(name)) {
      fail<InvalidArgument>("[metrics] \"", name, "\" is no label, wanted letters, digits and _, no digit in front");
    }
    if (std::find(kOwnLabels.begin(), kOwnLabels.end(), name) == kOwnLabels.end()) continue;
    fail<InvalidArgument>("[metrics] the figures have the label ", name, " by themselves, wanted another name");
  }
  SpanTotals::of_process();
}

void Figures::set_ready(bool ready) {
  const std::lock_guard lock(mutex_);
  ready_ = ready;
}

bool Figures::ready() const {
  const std::lock_guard lock(mutex_);
  return ready_;
}

void Figures::note_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

void Figures::note(const MetricsRecord& record) {
  const std::lock_guard lock(mutex_);
  step_ = record.step;
  records_[record.mode] = record;
}

void Figures::note(const Strategy& strategy) {
  StrategyFacts facts{.name = std::string(strategy.name()),
                      .replicas = strategy.num_replicas_in_sync(),
                      .rank = Access::core(strategy)->worker_rank(),
                      .devices = strategy.worker_devices()};
  const std::lock_guard lock(mutex_);
  strategy_ = std::move(facts);
}

std::vector<MetricFamily> Figures::collect() const {
  Families families(labels_);
  std::vector<LogicalDevice> devices;
  {
    const std::lock_guard lock(mutex_);
    families.one("cohort_ready", MetricType::Gauge, "1 if the workers have met.", ready_ ? 1 : 0);
    families.begin("cohort_info", MetricType::Gauge, "1, with the strategy of the worker as labels.");
    if (strategy_) {
      families.add(1, {{"strategy", strategy_->name},
                       {"replicas", std::to_string(strategy_->replicas)},
                       {"rank", std::to_string(strategy_->rank)}});
      devices = strategy_->devices;
    }
    families.begin("cohort_global_step", MetricType::Gauge, "The number of steps of the training.");
    if (step_) families.add(static_cast<double>(*step_));
    families.begin("cohort_examples_per_second", MetricType::Gauge, "The speed of a phase.");
    for (const auto& [phase, each] : records_) {
      if (each.examples_per_second > 0) families.add(each.examples_per_second, {{"phase", phase}});
    }
    families.begin("cohort_log", MetricType::Gauge, "The loss and the metrics of a phase.");
    for (const auto& [phase, each] : records_) {
      for (const auto& [name, value] : each.metrics) families.add(value, {{"phase", phase}, {"name", name}});
    }
  }
  families.begin("cohort_device_memory_bytes", MetricType::Gauge, "Memory of the fullest device of the worker.");
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  for (const auto& [name, value] : memory_logs(devices)) {
    families.add(value * kGiB, {{"kind", name.substr(std::string_view("memory_").size())}});
  }
  add_spans(families);
  add_restarts(families);
  add_process(families);
  return families.take();
}

}  // namespace cohort
