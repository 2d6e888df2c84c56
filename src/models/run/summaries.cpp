#include "models/run/summaries.h"

#include <algorithm>

#include "base/access.h"
#include "strategy/parameter_layout.h"
#include "strategy/pipeline/stages.h"

namespace cohort {

RunSummaries::RunSummaries(const std::filesystem::path& model_dir, const RunPlan::Summaries& plan, bool writes)
    : folder_(model_dir), plan_(plan), writes_(writes) {}

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

void RunSummaries::write(SummaryWriter& out, const char* mode, int64_t step, int64_t epochs, const Logs& logs,
                         double rate) {
  for (const auto& [name, value] : logs) out.scalar(name, value, step);
  out.scalar("examples_per_second", rate, step);
  out.flush();
  append_metrics(folder_ / "metrics.jsonl", {step, epochs, mode, logs, rate});
}

void RunSummaries::trained(int64_t step, int64_t epochs, const Logs& logs, double examples_per_second) {
  if (writes_) write(writer(train_, "train"), "train", step, epochs, logs, examples_per_second);
}

void RunSummaries::evaluated(int64_t step, int64_t epochs, const Logs& logs, double examples_per_second,
                             const Model& model) {
  // Several workers may have parts of one parameter, so all of them take part.
  std::vector<std::pair<std::string, torch::Tensor>> wholes;
  if (plan_.histograms && has_stages(*Access::core(model.module()))) {
    const auto parameters = model.module().copies().front()->named_parameters();
    for (const auto& [name, tensor] : model.module().state()) {
      if (parameters.contains(name)) wholes.emplace_back(name, tensor.detach());
    }
  } else if (plan_.histograms) {
    for (const auto& item : model.module().copies().front()->named_parameters()) {
      const auto part_of = [&](int replica) {
        return model.module().copies()[static_cast<std::size_t>(replica)]->named_parameters()[item.key()].detach();
      };
      wholes.emplace_back(item.key(), Access::layout(model.module())->whole(item.key(), part_of));
    }
  }
  if (!writes_) return;
  SummaryWriter& out = writer(validation_, plan_.validation_folder);
  for (const auto& [name, whole] : wholes) out.histogram(name, whole, step);
  write(out, "eval", step, epochs, logs, examples_per_second);
}

}  // namespace cohort
