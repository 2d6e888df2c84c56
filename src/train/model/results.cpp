// The measurements of the steps of a model: the means of the losses and the metrics, each a sum over the replicas.
#include <algorithm>
#include <map>
#include <set>

#include "base/fail.h"
#include "train/model/model_state.h"

namespace cohort {

namespace {

// The names in logs: each once, a name that another one has gets a number.
class LogNames {
 public:
  explicit LogNames(const CompileOptions& options) : others_(options.log_names.begin(), options.log_names.end()) {}

  bool has(const std::string& usual) const { return others_.contains(usual); }
  // Returns the name of a measurement whose usual name this is. Where that is taken it is `instead`, unless empty.
  std::string take(const std::string& usual, const std::string& instead = "") {
    const auto other = others_.find(usual);
    const std::string base =
        other != others_.end() ? other->second : (!instead.empty() && taken_.contains(usual) ? instead : usual);
    if (other != others_.end()) others_.erase(other);
    std::string name = base;
    for (int i = 1; !taken_.insert(name).second; ++i) name = base + "_" + std::to_string(i);
    return name;
  }
  void require_used(const std::string& speaker) const {
    if (others_.empty()) return;
    fail<InvalidArgument>(speaker, "compile: log_names has \"", others_.begin()->first,
                          "\", which is no loss or metric; there are \"", c10::Join("\", \"", taken_), "\"");
  }

 private:
  std::map<std::string, std::string> others_;
  std::set<std::string> taken_ = {"loss"};
};

}  // namespace

// Those of several outputs begin with the output's name. The loss of a single one is the loss: it is logged once more
// only under a name of its own.
void ModelState::add_metrics(const CompileOptions& options) {
  const bool single = outputs_->single();
  LogNames names(options);
  output_losses_.clear();
  metrics_.clear();
  for (const ModelOutput& each : outputs_->list()) {
    if (!each.loss || (single && !names.has(each.name + "_loss"))) continue;
    output_losses_.emplace_back(strategy_, Mean({.name = names.take(each.name + "_loss")}));
  }
  const auto add = [&](std::size_t output, const std::vector<Metric>& metrics, bool weighted) {
    for (const Metric& metric : metrics) {
      const std::string of_output = single ? "" : outputs_->list()[output].name + "_";
      const std::string instead = weighted ? of_output + "weighted_" + metric.name() : "";
      metrics_.push_back(
          {MirroredMetric(strategy_, metric), output, weighted, names.take(of_output + metric.name(), instead)});
    }
  };
  add(0, options.metrics, false);
  add(0, options.weighted_metrics, true);
  for (const auto& [name, metrics] : options.output_metrics) add(outputs_->index_of(name, ""), metrics, false);
  for (const auto& [name, metrics] : options.weighted_output_metrics) add(outputs_->index_of(name, ""), metrics, true);
  names.require_used(speaker());
}

Direction ModelState::direction(std::string_view log) const {
  constexpr std::string_view kPrefix = "val_";
  if (log.substr(0, kPrefix.size()) == kPrefix) log.remove_prefix(kPrefix.size());
  if (is_loss(log)) return Direction::kDown;
  const Measured* metric = find_metric(log);
  return metric == nullptr ? Direction::kUnknown : metric->metric.metric().direction();
}

bool ModelState::measures(std::string_view log) const {
  return is_loss(log) || find_metric(log) != nullptr;
}

bool ModelState::is_loss(std::string_view log) const {
  return log == "loss" || std::any_of(output_losses_.begin(), output_losses_.end(),
                                      [&](const MirroredMetric& each) { return each.metric().name() == log; });
}

const ModelState::Measured* ModelState::find_metric(std::string_view log) const {
  const auto found = std::find_if(metrics_.begin(), metrics_.end(), [&](const Measured& each) {
    return each.name == log || log.starts_with(each.name + "[");  // one number of several
  });
  return found == metrics_.end() ? nullptr : &*found;
}

void ModelState::reset_metrics() {
  loss_metric_.reset_state();
  for (MirroredMetric& each : output_losses_) each.reset_state();
  for (Measured& each : metrics_) each.metric.reset_state();
}

Logs ModelState::keeping_metrics(const std::function<Logs()>& fn) {
  finish_steps();  // whose measurements may come late
  const auto set_back = [this, sums = metric_sums(), compilations = compilations_] {
    if (compilations == compilations_) set_metric_sums(sums);
  };
  Logs logs;
  try {
    logs = fn();
  } catch (...) {
    set_back();
    throw;
  }
  set_back();
  return logs;
}

template <typename Result>
Logs ModelState::collect(const Result& result) const {
  Logs logs{{"loss", result(loss_metric_).front()}};
  for (const MirroredMetric& each : output_losses_) logs.set(each.metric().name(), result(each).front());
  for (const Measured& each : metrics_) {
    const std::vector<double> numbers = result(each.metric);
    if (numbers.size() == 1) logs.set(each.name, numbers.front());
    for (std::size_t i = 0; numbers.size() > 1 && i < numbers.size(); ++i) {
      logs.set(each.name + "[" + std::to_string(i) + "]", numbers[i]);
    }
  }
  return logs;
}

Logs ModelState::results() const {
  finish_steps();
  return collect([](const MirroredMetric& metric) { return metric.results(); });
}

Logs ModelState::local_results() const {
  steps_->collect();
  return collect([](const MirroredMetric& metric) { return metric.local_results(); });
}

std::vector<torch::Tensor> ModelState::metric_sums() const {
  std::vector<torch::Tensor> sums{loss_metric_.local_total()};
  for (const MirroredMetric& each : output_losses_) sums.push_back(each.local_total());
  for (const Measured& each : metrics_) sums.push_back(each.metric.local_total());
  return sums;
}

void ModelState::set_metric_sums(const std::vector<torch::Tensor>& sums) {
  auto next = sums.begin();
  loss_metric_.set_local_total(*next++);
  for (MirroredMetric& each : output_losses_) each.set_local_total(*next++);
  for (Measured& each : metrics_) each.metric.set_local_total(*next++);
}

void ModelState::add_metric_sums(const std::vector<torch::Tensor>& more) {
  auto next = more.begin();
  loss_metric_.add_local_total(*next++);
  for (MirroredMetric& each : output_losses_) each.add_local_total(*next++);
  for (Measured& each : metrics_) each.metric.add_local_total(*next++);
}

double ModelState::local_loss() const {
  steps_->collect();
  return loss_metric_.local_result();
}

}  // namespace cohort
