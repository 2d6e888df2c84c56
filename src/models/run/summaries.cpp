#include "models/run/summaries.h"

#include <algorithm>

#include "base/regular_file.h"
#include "checkpoint/wholes_on_chief.h"
#include "strategy/memory_use.h"
#include "strategy/module_pieces.h"

namespace cohort {

RunSummaries::RunSummaries(const std::filesystem::path& model_dir, const RunPlan::Summaries& plan, bool writes)
    : folder_(model_dir), plan_(plan), writes_(writes) {
  if (writes_) require_own_file(metrics(), "train");
}

SummaryWriter& RunSummaries::writer(std::optional<SummaryWriter>& which, const std::string& folder) {
  if (!which) which.emplace(folder_ / folder);
  return *which;
}

void RunSummaries::begin(const Config& config, const TaskData& data) {
  if (!writes_) return;
  SummaryWriter& out = writer(train_, "train");
  std::map<std::string, HParam> params;
  for (const Config::Change& change : config.changes()) params[change.path] = change.value;
  out.hparams(params);
  out.text("params", "```\n" + config.to_yaml() + "```", 0);
  if (plan_.images == 0 || !data.train) return;
  const std::optional<Example> batch = data.train->iterator({.epoch = 0}).next();
  if (!batch || !batch->x.defined() || batch->x.dim() < 3) return;
  for (int64_t i = 0; i < std::min(plan_.images, batch->x.size(0)); ++i) {
    torch::Tensor image = batch->x[i].to(torch::kFloat);
    if (image.dim() == 2) image = image.unsqueeze(0);
    const torch::Tensor least = image.min();
    out.image("examples/" + std::to_string(i), (image - least) / (image.max() - least).clamp_min(1e-6), 0);
  }
  out.flush();
}

void RunSummaries::write(SummaryWriter& out, const char* mode, int64_t step, int64_t epochs, Logs logs, double rate) {
  for (const auto& [name, value] : memory_logs(current_strategy().worker_devices())) logs.set(name, value);
  for (const auto& [name, value] : logs) out.scalar(name, value, step);
  out.scalar("examples_per_second", rate, step);
  out.flush();
  require_own_file(metrics(), "train");
  append_metrics(metrics(), {step, epochs, mode, logs, rate});
}

void RunSummaries::trained(int64_t step, int64_t epochs, const Logs& logs, double examples_per_second) {
  if (writes_) write(writer(train_, "train"), "train", step, epochs, logs, examples_per_second);
}

void RunSummaries::evaluated(int64_t step, int64_t epochs, const Logs& logs, double examples_per_second,
                             const Model& model) {
  if (plan_.histograms) histograms(model.module(), step);
  if (!writes_) return;
  write(writer(validation_, plan_.validation_folder), "eval", step, epochs, logs, examples_per_second);
}

void RunSummaries::histograms(const MirroredModule& module, int64_t step) {
  const auto parameters = module.copies().front()->named_parameters();
  const auto note = [&](const std::string& name, const torch::Tensor& whole) {
    if (writes_) writer(validation_, plan_.validation_folder).histogram(name, whole.detach(), step);
  };
  if (!is_divided(module)) {
    for (const auto& item : parameters) note(item.key(), item.value());
    return;
  }
  const WholesOnChief wholes(module);
  for (const auto& [name, shape] : wholes.shapes()) {
    if (parameters.contains(name)) note(name, wholes.bring(name));
  }
}

}  // namespace cohort
