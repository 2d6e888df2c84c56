// Figures: the numbers that a MetricsServer serves.
#pragma once

#include <prometheus/metric_family.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cohort/train/metrics_server.h"

namespace cohort {

class Figures {
 public:
  // InvalidArgument: a label cannot be one, or is one of the figures' own.
  explicit Figures(const std::map<std::string, std::string>& labels);

  void set_ready(bool ready);
  bool ready() const;
  void note_step(int64_t step);
  void note(const MetricsRecord& record);
  void note(const Strategy& strategy);

  // Returns them as they are now. Thread-safe, as all of it.
  std::vector<prometheus::MetricFamily> collect() const;

 private:
  struct StrategyFacts {
    std::string name;
    int replicas;
    int rank;
    std::vector<LogicalDevice> devices;
  };
  std::map<std::string, std::string> labels_;
  mutable std::mutex mutex_;
  bool ready_ = false;
  std::optional<int64_t> step_;
  std::map<std::string, MetricsRecord> records_;  // the last ones, by mode
  std::optional<StrategyFacts> strategy_;
};

}  // namespace cohort
