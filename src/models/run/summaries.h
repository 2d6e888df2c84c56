// The files of a run that people look at: metrics.jsonl and TensorBoard's event files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cohort/mirrored.h"
#include "cohort/models/config.h"
#include "cohort/models/experiment.h"
#include "cohort/train/summary.h"
#include "models/run/plan.h"

namespace cohort {

// Writes them on the chief; it does nothing on the others.
class RunSummaries {
 public:
  RunSummaries(const std::filesystem::path& model_dir, const RunPlan::Summaries& plan, bool writes);

  // Writes the configuration of a training and some images of its data; called at the beginning.
  void begin(const Config& config, const TaskData& data);
  void trained(int64_t step, int64_t epochs, const Logs& logs, double examples_per_second);
  void evaluated(int64_t step, int64_t epochs, const Logs& logs, double examples_per_second, const Model& model);

 private:
  // Writes one of each parameter. Several workers may have parts of one, so all of them take part.
  void histograms(const MirroredModule& module, int64_t step);
  void write(SummaryWriter& writer, const char* mode, int64_t step, int64_t epochs, Logs logs, double rate);
  std::filesystem::path metrics() const { return folder_ / "metrics.jsonl"; }
  SummaryWriter& writer(std::optional<SummaryWriter>& which, const std::string& folder);

  std::filesystem::path folder_;
  RunPlan::Summaries plan_;
  bool writes_;
  std::optional<SummaryWriter> train_;
  std::optional<SummaryWriter> validation_;
};

}  // namespace cohort
