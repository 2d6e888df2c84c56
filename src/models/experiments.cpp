#include <array>
#include <mutex>

#include "base/edit_distance.h"
#include "base/fail.h"
#include "models/experiment_group.h"

namespace cohort {

namespace {

constexpr std::array kWings = {"ranking", "text", "vision"};  // that have experiments

std::vector<Experiment> experiments_of_wings() {
  std::vector<Experiment> list;
  for (const ExperimentGroup& group : by_place<ExperimentGroup>()) {
    for (Experiment& experiment : group.make()) list.push_back(std::move(experiment));
  }
  return list;
}

// Returns the sentence of a wing that knows the name, or an empty text.
std::string why_missing(std::string_view name) {
  for (const ExperimentGroup& group : extensions<ExperimentGroup>()) {
    std::string why = group.why_missing == nullptr ? "" : group.why_missing(name);
    if (!why.empty()) return why;
  }
  return "";
}

// Returns the wings that are not in this build, for an error.
std::string absent_wings() {
  std::string absent;
  const std::vector<ExperimentGroup>& groups = extensions<ExperimentGroup>();
  for (const std::string_view wing : kWings) {
    const bool is_here = std::any_of(groups.begin(), groups.end(), [&](const auto& each) { return each.wing == wing; });
    if (!is_here) absent += c10::str(absent.empty() ? "" : ", ", wing);
  }
  return absent.empty() ? "" : "; this build lacks experiments of the wings " + absent + " (COHORT_WINGS)";
}

struct Registry {
  std::mutex mutex;
  std::vector<Experiment> list = experiments_of_wings();
};

Registry& registry() {
  static Registry made;
  return made;
}

}  // namespace

void register_experiment(Experiment experiment) {
  if (experiment.name.empty() || !experiment.make) {
    fail<InvalidArgument>("[train] an experiment has no ", experiment.name.empty() ? "name" : "factory");
  }
  const std::lock_guard lock(registry().mutex);
  for (const Experiment& each : registry().list) {
    if (each.name == experiment.name)
      fail<InvalidArgument>("[train] there is an experiment \"", each.name, "\" already");
  }
  registry().list.push_back(std::move(experiment));
}

std::vector<Experiment> experiments() {
  const std::lock_guard lock(registry().mutex);
  return registry().list;
}

Experiment find_experiment(std::string_view name) {
  std::string known;
  std::string nearest;
  std::size_t least = name.size() / 2 + 1;
  for (const Experiment& experiment : experiments()) {
    if (experiment.name == name) return experiment;
    known += c10::str(known.empty() ? "" : ", ", experiment.name);
    if (const std::size_t distance = edit_distance(name, experiment.name); distance < least) {
      least = distance;
      nearest = experiment.name;
    }
  }
  if (known.empty()) known = "none";
  if (name.empty()) fail<InvalidArgument>("[train] --experiment is missing; there are ", known, absent_wings());
  const std::string missing = why_missing(name);
  if (!missing.empty()) fail<NotFound>("[train] ", missing);
  fail<NotFound>("[train] there is no experiment \"", name, "\"; there are ", known, absent_wings(),
                 nearest.empty() ? "" : "; did you mean " + nearest + "?");
}

void Task::set_data(Config& config, const std::string& folder, const std::string& origin) {
  config.set("task.train_data.input_path", folder, origin);
}

void Task::set_batch(Config& config, int64_t size, const std::string& origin) {
  config.set("task.train_data.global_batch_size", std::to_string(size), origin);
  config.set("task.validation_data.global_batch_size", std::to_string(size), origin);
}

void Task::add_losses(CompileOptions& options) {
  options.loss = build_loss();
  options.metrics = build_metrics();
}

}  // namespace cohort
